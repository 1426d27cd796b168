#![no_main]

use libfuzzer_sys::fuzz_target;
use warpfeed::RecordFormat;

// The bytes as an archive, and with a right checksum in every block, since no fuzzer guesses it.
fuzz_target!(|data: &[u8]| {
    warpfeed_fuzz::shard(RecordFormat::WebDataset, data);
    let mut sealed = data.to_vec();
    for block in sealed.chunks_exact_mut(512).filter(|block| block.iter().any(|&byte| byte != 0)) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    warpfeed_fuzz::shard(RecordFormat::WebDataset, &sealed);
});
