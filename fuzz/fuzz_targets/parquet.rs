#![no_main]

// libFuzzer's hook would end the process before a panic is caught. One that is not caught still does.
libfuzzer_sys::fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| {})),
    |data: &[u8]| warpfeed_fuzz::parquet(data)
);
