#![no_main]

use libfuzzer_sys::fuzz_target;
use warpfeed::RecordFormat;

fuzz_target!(|data: &[u8]| warpfeed_fuzz::shard(RecordFormat::RecordIo, data));
