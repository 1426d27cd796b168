//! Scratch.
use warpfeed::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let load: u32 = a[3].parse().unwrap();
    let preset = match a[2].as_str() {
        "train" => Preset::Train,
        "a" => Preset::TrialA { load },
        "b" => Preset::TrialB { load },
        _ => Preset::Eval,
    };
    let strategy = match a.get(5).map(|s| s.as_str()) {
        Some("seq") => Strategy::Sequential,
        Some("comp") => Strategy::Composed,
        _ => Strategy::Fused,
    };
    let p = Pipeline::builder(ImageFolder::open(&a[1]).unwrap())
        .shuffle(1)
        .threads(a[4].parse().unwrap())
        .strategy(strategy)
        .preset(preset)
        .build()
        .unwrap();
    let r = experiment::run::run(&p, 0..5, false, std::time::Instant::now(), &mut |_| {}).unwrap();
    println!("{:.1}/s  {:?} rss {:?} first {:?}", r.pictures_per_s, r.stages, r.peak_rss_bytes, r.first_batch_s);
}
