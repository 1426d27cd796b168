//! `warpfeed check-gpu` on the simulated device, whose nvJPEG can be broken:
//! `cuda-sim/run cargo test --test check_gpu -- --ignored`.
#![cfg(feature = "cli")]

use serde_json::Value;
use std::process::Command;

/// Checks nvJPEG's decoders with a simulated nvJPEG that is broken in this way: the exit code, what was found, and what was
/// said.
fn check(broken: &str) -> (Option<i32>, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(["check-gpu", "--parts", "decoders", "--json"]).env("CUDA_SIM_NVJPEG", broken);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{broken}: {said}"));
    (output.status.code(), found, said)
}

fn faults(decoder: &Value) -> Vec<&str> {
    decoder["faults"].as_array().unwrap().iter().map(|fault| fault.as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs the simulated device: cuda-sim/run cargo test --test check_gpu -- --ignored"]
fn whole_decoders_are_told_from_broken_ones() {
    let (code, found, said) = check("");
    assert_eq!((code, &*said), (Some(0), ""), "{found}");
    let [hybrid, hardware] = [&found["decoders"][0], &found["decoders"][1]];
    let count = |decoder: &Value, field: &str| decoder[field].as_u64().unwrap();
    for (decoder, images) in [(hybrid, 7), (hardware, 6)] {
        assert_eq!((count(decoder, "images"), count(decoder, "decoded")), (images, images), "{decoder}");
        assert_eq!((count(decoder, "fault_count"), count(decoder, "max")), (0, 0), "{decoder}");
    }
    assert_eq!((count(&hybrid["pipeline"], "hybrid"), count(&hardware["pipeline"], "hardware")), (7, 6));

    // What decoders give is wrong, and they say that all is well.
    for (broken, meant) in [("wrong", "in the mean of the block at"), ("nothing", "were not written")] {
        let (code, found, said) = check(broken);
        assert_eq!(code, Some(1), "{broken}: {found}");
        for (decoder, name) in found["decoders"].as_array().unwrap().iter().zip(["hybrid", "hardware"]) {
            assert!(said.contains(&format!("decode {name}: ")), "{said}");
            assert!(faults(decoder).iter().any(|fault| fault.contains(meant)), "{broken}: {decoder}");
            assert!(faults(decoder).iter().any(|fault| fault.contains("in a pipeline")), "{broken}: {decoder}");
        }
    }

    // The CPU decodes what they refuse, to the right bytes.
    let (code, found, said) = check("refuse");
    assert_eq!(code, Some(1), "{found}");
    assert!(said.contains("alone it decoded 0 of 7 images that are for it"), "{said}");
    assert!(said.contains("alone it decoded 0 of 6 images that are for it"), "{said}");
    for (decoder, images) in found["decoders"].as_array().unwrap().iter().zip([7, 6]) {
        let pipeline = format!("in a pipeline it decoded 0 of {images} images that are for it");
        assert!(faults(decoder).contains(&&*pipeline) && faults(decoder).len() == 2, "{decoder}");
        assert_eq!((count(&decoder["pipeline"], "cpu"), count(decoder, "max")), (7, 0), "{decoder}");
    }
}
