#![no_main]

use libfuzzer_sys::fuzz_target;
use warpfeed::IdxFile;
use warpfeed_fuzz::{file, read_all};

// Images and labels, plain and compressed: the first byte says where they part.
fuzz_target!(|data: &[u8]| {
    let Some((&at, data)) = data.split_first() else { return };
    let (images, labels) = data.split_at(data.len() * usize::from(at) / 256);
    for ending in ["", ".gz"] {
        let path = file(&format!("a-images-idx3-ubyte{ending}"), images);
        let labels = file(&format!("a-labels-idx1-ubyte{ending}"), labels);
        if let Ok(source) = IdxFile::open(&path) {
            read_all(&source);
        }
        for path in [path, labels] {
            std::fs::remove_file(path).expect("the file is ours");
        }
    }
});
