#![no_main]

use libfuzzer_sys::fuzz_target;
use warpfeed::RecordFormat;

/// CRC-32C, masked: made right, since no fuzzer guesses it.
fn checksum(data: &[u8]) -> [u8; 4] {
    let crc = !data.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

// The bytes as a file, and as the example of one record.
fuzz_target!(|data: &[u8]| {
    warpfeed_fuzz::shard(RecordFormat::TfRecord, data);
    let len = (data.len() as u64).to_le_bytes();
    let record = [&len[..], &checksum(&len), data, &checksum(data)].concat();
    warpfeed_fuzz::shard(RecordFormat::TfRecord, &record);
});
