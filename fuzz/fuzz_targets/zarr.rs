#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| warpfeed_fuzz::zarr(data));
