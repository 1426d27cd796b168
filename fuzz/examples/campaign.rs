//! Feeds mutated inputs to all targets in turn, and continues where it stopped (`fuzz/campaign`):
//! `campaign INPUTS SEED FOLDER`. An input depends only on seed and number. One that ends the process is recorded and
//! skipped.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Partition, Pipeline,
    image::{ChromaSampling, Image, JpegColor, JpegOptions, Size, encode_jpeg},
    source::EncodedImages,
};
use warpfeed_fuzz::{CHOICES_BYTES, TARGETS, good_log, good_manifest};

/// Largest size of an input.
const MAX_BYTES: usize = 64 << 10;

/// An input that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// The campaign ends after this many findings: something is too wrong to go on.
const MAX_FINDINGS: usize = 100;

/// Shares of the inputs by target, in the order of [`TARGETS`].
const SHARES: [u32; TARGETS.len()] =
    [30, 15, 10, 16, 4, 8, 7, 7, 5, 4, 6, 4, 3, 3, 3, 2, 2, 2, 4, 3, 3, 3, 2, 1, 2, 1];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number"));
    match &args[..] {
        [mode, inputs, seed, folder, only @ ..] if mode == "work" => {
            work(number(inputs), Inputs::new(number(seed), only.first()), Path::new(folder))
        }
        [mode, at, seed] if mode == "one" => {
            let (target, input) = Inputs::new(number(seed), None).make(number(at));
            std::io::stdout().write_all(&input).expect("standard output");
            eprintln!("{}, {} bytes", TARGETS[target].0, input.len());
            TARGETS[target].1(&input);
            ExitCode::SUCCESS
        }
        [inputs, seed, folder] => oversee(number(inputs), number(seed), Path::new(folder)),
        _ => panic!(
            "campaign [work] INPUTS SEED FOLDER, campaign work INPUTS SEED FOLDER TARGET, or campaign one NUMBER SEED"
        ),
    }
}

/// Progress of the campaign: the number of the input that is being tried.
fn stands_at(folder: &Path) -> u64 {
    fs::read_to_string(folder.join("at")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Has another process try the inputs, and starts it again when it ends.
fn oversee(inputs: u64, seed: u64, folder: &Path) -> ExitCode {
    fs::create_dir_all(folder).expect("a folder for the state");
    let program = std::env::current_exe().expect("a path to this program");
    let started = (Instant::now(), stands_at(folder));
    loop {
        let said = File::create(folder.join("said")).expect("a file for what is said");
        let status = Command::new(&program)
            .args(["work", &inputs.to_string(), &seed.to_string()])
            .arg(folder)
            .stderr(said)
            .status()
            .expect("this program starts");
        let at = stands_at(folder);
        if !status.success() {
            let (target, _) = Inputs::new(seed, None).make(at);
            let said = fs::read(folder.join("said")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said[..said.len().min(6_000)]).into_owned();
            let mut findings = File::options().append(true).create(true).open(folder.join("findings")).expect("a file");
            let finding = format!("== input {at}, seed {seed}, {}: {status}\n{said}\n", TARGETS[target].0);
            findings.write_all(finding.as_bytes()).expect("the finding is noted");
            eprint!("{finding}");
            note(&File::create(folder.join("at")).expect("a file"), at + 1);
        }
        let found = fs::read_to_string(folder.join("findings")).unwrap_or_default().matches("== input ").count();
        let (done, seconds) = (stands_at(folder), started.0.elapsed().as_secs());
        if done >= inputs || found > MAX_FINDINGS {
            println!(
                "{done} inputs of seed {seed} tried, {} of them in these {seconds} s: {found} findings",
                done - started.1
            );
            return if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    }
}

fn note(file: &File, at: u64) {
    file.write_all_at(format!("{at:>12}\n").as_bytes(), 0).expect("the state is written");
}

/// Tries inputs until all are done.
fn work(inputs: u64, source: Inputs, folder: &Path) -> ExitCode {
    // Parquet's library panics on some damage, which is caught. Such panics are not printed.
    let message = Arc::new(Mutex::new(String::new()));
    std::panic::set_hook(Box::new({
        let message = Arc::clone(&message);
        move |info| *message.lock().expect("no panic holds it") = info.to_string()
    }));
    let first = stands_at(folder);
    let state = File::options().write(true).create(true).truncate(false).open(folder.join("at")).expect("a state file");
    let current = Arc::new(AtomicU64::new(first));
    std::thread::spawn({
        let current = Arc::clone(&current);
        move || {
            let (mut seen, mut since) = (u64::MAX, Instant::now());
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let now = current.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                } else if since.elapsed() > PATIENCE {
                    eprintln!("it hangs");
                    std::process::abort();
                }
            }
        }
    });
    for at in first..inputs {
        current.store(at, Ordering::Relaxed);
        note(&state, at);
        let (target, input) = source.make(at);
        if std::panic::catch_unwind(|| TARGETS[target].1(&input)).is_err() {
            eprintln!("{}", message.lock().expect("no panic holds it"));
            return ExitCode::FAILURE;
        }
    }
    note(&state, inputs);
    ExitCode::SUCCESS
}

/// The inputs of a seed.
struct Inputs {
    seed: u64,
    /// The target that gets all inputs; `None`: all targets.
    only: Option<usize>,
    /// Valid inputs for each target.
    good: [Vec<Vec<u8>>; TARGETS.len()],
}

impl Inputs {
    fn new(seed: u64, only: Option<&String>) -> Self {
        let numbered = |name: &String| TARGETS.iter().position(|target| target.0 == name);
        let only = only.map(|name| numbered(name).unwrap_or_else(|| panic!("{name} is no target")));
        let images = images();
        let corpus = |name: &str| files(&PathBuf::from("corpus").join(name));
        let good = TARGETS.map(|(name, _)| match name {
            "image" | "device" | "baseline" => images.clone(),
            "oddities" => corpus(name).into_iter().map(|data| data[CHOICES_BYTES..].to_vec()).collect(),
            "stream" => ["tar", "recordio", "tfrecord"].into_iter().flat_map(corpus).collect(),
            "index" => vec![vec![0; 3], vec![0; 30]],
            "list" => vec![b"a/b.jpg\t3\n# no\n\nc d.png\t4294967295\r\n/e\t0".to_vec()],
            "json" => texts(),
            "log" => [false, true].map(good_log).to_vec(),
            "manifest" => vec![good_manifest()],
            _ => corpus(name),
        });
        assert!(good.iter().all(|good| !good.is_empty()), "to be run in fuzz/");
        Self { seed, only, good }
    }

    /// Makes the input of this number, and chooses its target.
    fn make(&self, at: u64) -> (usize, Vec<u8>) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut share = rng.random_range(0..SHARES.iter().sum());
        let shared = SHARES
            .iter()
            .position(|&part| {
                part > share || {
                    share -= part;
                    false
                }
            })
            .expect("a share is hit");
        let target = self.only.unwrap_or(shared);
        let good = &self.good[target];
        let mut input = good[rng.random_range(0..good.len())].clone();
        if TARGETS[target].0 == "oddities" {
            let choices: [u8; CHOICES_BYTES] = rng.random();
            return (target, [&choices, &input[..]].concat());
        }
        if ["json", "contract", "log", "manifest"].contains(&TARGETS[target].0) && rng.random_ratio(3, 4) {
            return (target, other_values(&input, &mut rng));
        }
        for _ in 0..1 << rng.random_range(0..5) {
            mutate(&mut input, &good[rng.random_range(0..good.len())], &mut rng);
        }
        input.truncate(MAX_BYTES);
        (target, input)
    }
}

/// Lines of JSON, or one text of it, in which up to three values are others.
fn other_values(input: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut values = match serde_json::from_slice::<Value>(input) {
        Ok(whole) => vec![whole],
        Err(_) => input.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect(),
    };
    for _ in 0..rng.random_range(1..=3) {
        let at = rng.random_range(0..values.len());
        change(&mut values[at], rng);
    }
    let is_indented = values.len() == 1;
    let text = |value: &Value| if is_indented { format!("{value:#}\n") } else { format!("{value}\n") };
    values.iter().map(text).collect::<String>().into_bytes()
}

/// Replaces one of the values within a value: by a number, a path, another of its kind, or one from nearby.
fn change(value: &mut Value, rng: &mut ChaCha8Rng) {
    const NUMBERS: [i64; 10] = [0, 1, -1, 2, 7, 255, 1 << 31, 1 << 32, 1 << 40, i64::MAX];
    const TEXTS: [&str; 12] = [
        "",
        ".",
        "../evil",
        "/etc/passwd",
        "/dev/zero",
        "evil/a",
        "http://127.0.0.1:9/a.tar",
        "-",
        "a\nb",
        "1/2",
        "ff",
        "\u{202e}",
    ];
    match value {
        Value::Object(entries) if !entries.is_empty() && rng.random_ratio(9, 10) => {
            let at = rng.random_range(0..entries.len());
            if rng.random_ratio(1, 20) {
                let name = entries.keys().nth(at).cloned().expect("it is below the length");
                entries.remove(&name);
            } else {
                change(entries.values_mut().nth(at).expect("it is below the length"), rng);
            }
        }
        Value::Array(values) if !values.is_empty() && rng.random_ratio(4, 5) => {
            let at = rng.random_range(0..values.len());
            match rng.random_range(0..10) {
                0 => drop(values.remove(at)),
                1 => values.insert(at, values[at].clone()),
                2 => values.swap(at, 0),
                _ => change(&mut values[at], rng),
            }
        }
        _ => {
            *value = match (rng.random_range(0..12), value.as_u64()) {
                (0..=2, _) => NUMBERS[rng.random_range(0..NUMBERS.len())].into(),
                (3, _) => u64::MAX.into(),
                (4, _) => {
                    [Value::Null, true.into(), false.into(), 1e308.into(), 0.5.into()][rng.random_range(0..5)].clone()
                }
                (5, _) => [json!([]), json!({}), json!([[0, 1]])][rng.random_range(0..3)].clone(),
                (6..=8, Some(number)) => number.wrapping_add_signed(rng.random_range(-3..=3)).into(),
                _ => TEXTS[rng.random_range(0..TEXTS.len())].into(),
            }
        }
    }
}

/// Changes the input once. `other` is a valid input to take pieces from.
fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    if input.is_empty() {
        input.extend_from_slice(other);
        return;
    }
    // Headers are at the front, and in Parquet at the end, so these places are changed more often.
    let len = input.len();
    let at = match rng.random_range(0..4) {
        0 => rng.random_range(0..len.min(64)),
        1 => rng.random_range(0..len.min(700)),
        2 => len - 1 - rng.random_range(0..len.min(300)),
        _ => rng.random_range(0..len),
    };
    let most = 1 << rng.random_range(0..10);
    let run = rng.random_range(1..=most);
    let end = (at + run).min(len);
    match rng.random_range(0..12) {
        0..=2 => input[at] = rng.random(),
        3 => input[at] ^= 1 << rng.random_range(0..8),
        4 => input[at] = *[0, 1, 0x7F, 0x80, 0xFE, 0xFF, 0xD9, 0xDA].get(rng.random_range(0..8)).expect("one of eight"),
        5 => {
            let value =
                [0_u32, 1, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, len as u32][rng.random_range(0..8)];
            let bytes = if rng.random() { value.to_le_bytes() } else { value.to_be_bytes() };
            for (to, from) in input[at..].iter_mut().zip(&bytes[rng.random_range(0..4)..]) {
                *to = *from;
            }
        }
        6 => input[at..end].fill([0, 0xFF, rng.random()][rng.random_range(0..3)]),
        7 => drop(input.drain(at..end)),
        8 => {
            let piece = input[at..end].to_vec();
            let to = rng.random_range(0..=len);
            input.splice(to..to, piece);
        }
        9 => input.truncate(at),
        10 => {
            let piece = &other[at.min(other.len())..end.min(other.len())];
            input.splice(at..end, piece.iter().copied());
        }
        _ => input[at..end].iter_mut().for_each(|byte| *byte = rng.random()),
    }
}

/// The files of a folder, in the order of their names.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a file that can be read")).collect()
}

/// Small images of all formats: the tests' reference images, and one of each kind that the encoder writes.
fn images() -> Vec<Vec<u8>> {
    let small = |bytes: &Vec<u8>| warpfeed::image::probe(bytes).is_ok_and(|header| header.size.area_px() <= 60 * 60);
    let mut images: Vec<Vec<u8>> = files(Path::new("../tests/reference/images")).into_iter().filter(small).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut source = Image::new(Size::new(35, 29));
    source.pixels_mut().iter_mut().enumerate().for_each(|(at, pixel)| {
        *pixel = [at as u8, (at >> 2) as u8, rng.random_range(0..90), 255];
    });
    for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk, JpegColor::Ycck, JpegColor::Rgb] {
        for sampling in [
            ChromaSampling::S444,
            ChromaSampling::S420,
            ChromaSampling::S440,
            ChromaSampling { horizontal: 3, vertical: 1 },
        ] {
            for progressive in [false, true] {
                for restart_interval_rows in [0, 1] {
                    for quality in [20, 95] {
                        let orientation = Some(u16::from(quality) % 9);
                        let options =
                            JpegOptions { quality, sampling, progressive, restart_interval_rows, color, orientation };
                        images.extend(encode_jpeg(&source, &options));
                    }
                }
            }
        }
    }
    for (header, samples) in [("P5\n# gray\n9 7\n255\n", 63), ("P6 5 4 255\n", 60)] {
        images.push([header.as_bytes(), &vec![77; samples]].concat());
    }
    images
}

/// States, one of them after a change of the number of ranks, and recipes as JSON.
fn texts() -> Vec<Vec<u8>> {
    let jpeg = encode_jpeg(&Image::new(Size::new(20, 15)), &JpegOptions::default()).expect("a JPEG");
    let source = EncodedImages::new([(jpeg.clone(), 0), (jpeg, 1)]);
    let builder = Pipeline::builder(source).threads(0).batch_size(1).shuffle(3).transform(CenterCrop::new(8));
    let pipeline = |partition| builder.clone().partition(partition).build().expect("a good pipeline");
    let rank = |rank| pipeline(Partition::new(rank, 2).expect("a rank"));
    let one_of_two = rank(0).epoch(0).next().and_then(Result::ok).expect("a batch").state();
    let whole = pipeline(Partition::WHOLE);
    let after = whole.state_after(&[one_of_two, rank(1).epoch(0).state()]).expect("states of all ranks");
    let states = [whole.epoch(0).state(), after].map(|state| serde_json::to_vec(&state).expect("JSON"));
    let recipes = [
        r#"[{"op":"rotate","degrees":30.5,"interpolation":"bilinear","expand":true,"fill":[1,2,3]},{"op":"hflip"}]"#,
        r#"[{"op":"resized_crop","x":1,"y":2,"width":9,"height":9,"out_width":8,"out_height":7,"interpolation":"bicubic"}]"#,
        r#"[{"op":"resize","size":31},{"op":"center_crop","width":24,"height":24},{"op":"gaussian_blur","kernel":3,"sigma":1.5}]"#,
        r#"[{"op":"hue","factor":0.25},{"op":"dilate","kernel":3},{"op":"normalize","mean":[0.5,0.5,0.5],"std":[0.2,0.2,0.2]}]"#,
    ];
    recipes.iter().map(|text| text.as_bytes().to_vec()).chain(states).collect()
}
