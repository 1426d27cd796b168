#![no_main]

use libfuzzer_sys::fuzz_target;
use warpfeed::ParquetFiles;
use warpfeed_fuzz::{file, options, read_all};

// The library that reads the format panics on some damage, which is caught and made an error: libFuzzer's hook would end
// the process before. A panic that is not caught still does.
fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| {})),
    |data: &[u8]| {
        let path = file("rows.parquet", data);
        if let Ok(source) = ParquetFiles::open(&[path], &options()) {
            read_all(&source);
        }
    }
);
