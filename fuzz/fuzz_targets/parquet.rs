#![no_main]

use libfuzzer_sys::fuzz_target;
use warpfeed::ParquetFiles;
use warpfeed_fuzz::{file, options, read_all};

fuzz_target!(|data: &[u8]| {
    let path = file("rows.parquet", data);
    if let Ok(source) = ParquetFiles::open(&[path], &options()) {
        read_all(&source);
    }
});
