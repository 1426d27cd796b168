//! The experiments: verdicts, figures against another clock, and the command.

mod common;

use common::{Asking, source};
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use warpfeed::{
    Batch, Device, Pipeline, Preset, Result, Strategy,
    ops::{CenterCrop, Transform, random_horizontal_flip, random_resized_crop, random_rotation, repeat},
    source::{EncodedImages, ReadRequest, Source},
};
use warpfeed_bench::augment_load::{self, augment_load};
use warpfeed_bench::configurations::{self, configurations};
use warpfeed_bench::diagnose::{self, Diagnosis, TrainingBottleneck, diagnose};
use warpfeed_bench::events::Event;
use warpfeed_bench::report::{Cell, ReportTable};
use warpfeed_bench::step::{Outcome, TrainingStep};
use warpfeed_bench::stored::Stored;
use warpfeed_bench::subject::{Model, Subject};
use warpfeed_bench::train::{SteadyState, TrainingRun};
use warpfeed_bench::usage::UsageMonitor;
use warpfeed_bench::workers::{self, workers};

/// A training step that sleeps, and keeps its own account of it.
#[derive(Default)]
struct Sleeping {
    length: Duration,
    slept: Duration,
    steps: u64,
}

impl TrainingStep for Sleeping {
    fn name(&self) -> String {
        format!("sleeping {:?}", self.length)
    }

    fn train(&mut self, batch: Batch) -> Result<Outcome> {
        let start = Instant::now();
        assert!(!batch.is_empty());
        std::thread::sleep(self.length);
        drop(batch);
        self.slept += start.elapsed();
        self.steps += 1;
        Ok(Outcome { loss: Some(1.0 / self.steps as f64), accuracy: None })
    }

    fn evaluate(&mut self, batch: Batch) -> Result<Option<f64>> {
        Ok(Some(if batch.len() == 4 { 0.5 } else { 1.0 }))
    }

    fn learning_rate(&self) -> Option<f64> {
        Some(0.01)
    }
}

fn model(ms: u64) -> Model {
    if ms == 0 {
        return Model::none();
    }
    let step = Box::new(Sleeping { length: Duration::from_millis(ms), ..Sleeping::default() });
    Model { name: format!("{ms} ms"), step }
}

fn crop(side: u32) -> Transform {
    random_resized_crop(side)
}

/// When each image was asked for.
type Reads = Arc<Mutex<Vec<Instant>>>;

/// Images that come slowly.
fn slow(images: EncodedImages, delay: Duration, reads: &Reads) -> impl Source + use<> {
    let reads = Arc::clone(reads);
    Asking(images, move |_, _: &ReadRequest<'_>| {
        reads.lock().unwrap().push(Instant::now());
        std::thread::sleep(delay);
        Ok(())
    })
}

// ---- diagnose ----

fn diagnosed(
    source: impl Source + 'static,
    change: impl FnOnce(&mut diagnose::DiagnoseSettings),
    step_ms: u64,
) -> Diagnosis {
    let mut settings = diagnose::DiagnoseSettings::new([crop(64)]);
    (settings.threads, settings.cores, settings.batch_size) = (2, 2, 8);
    (settings.time, settings.rounds) = (Duration::from_millis(200), 3);
    change(&mut settings);
    let subject = Subject { device: Device::Cpu, ..Subject::new("made", source) };
    let found = diagnose(&subject, &settings, &mut model(step_ms), &mut |_| ()).unwrap();
    assert_eq!(found.report.figures["bottleneck"], serde_json::to_value(found.bottleneck).unwrap());
    assert_eq!((found.report.answer.len(), found.report.plots.len()), (3, 2));
    found
}

/// Asserts what the bottleneck is. Where other work took the processors, that is the bottleneck of whatever computes,
/// and nothing else can be said: `false`.
fn is(found: &Diagnosis, want: TrainingBottleneck) -> bool {
    let busy = found.report.busy.is_some_and(|busy| busy.share() >= 0.25);
    if busy && found.bottleneck == TrainingBottleneck::OtherWork {
        eprintln!("not judged: {}", found.report.warnings[0]);
        return false;
    }
    assert_eq!(found.bottleneck, want, "{:?}", found.report.answer);
    true
}

/// Photographs' sizes, so that decoding costs something.
fn large() -> EncodedImages {
    EncodedImages::new((0..8).map(|i| (common::jpeg(500, 375, i), 0)))
}

#[test]
fn a_slow_disk_is_found() {
    let source = slow(source(16), Duration::from_millis(30), &Reads::default());
    // Without a step, here and below where a gain is asked for: a busy machine's sleep is so long that it bounds the
    // gain.
    let found = diagnosed(source, |_| (), 0);
    assert_eq!(found.bottleneck, TrainingBottleneck::Disk, "{:?}", found.report.answer);
    assert!(found.gain.unwrap() > 2.0, "{:?}", found.report.answer);
    assert!(found.report.answer[0].contains("wait for bytes"), "{:?}", found.report.answer);
}

#[test]
fn few_threads_are_found() {
    let found = diagnosed(large(), |settings| (settings.threads, settings.cores) = (1, 8), 1);
    if is(&found, TrainingBottleneck::Threads) {
        assert!(found.report.answer[2].contains("--threads"), "{:?}", found.report.answer);
    }
}

#[test]
fn heavy_augmentation_is_found() {
    let heavy = |settings: &mut diagnose::DiagnoseSettings| {
        settings.ops = vec![repeat(200, [random_horizontal_flip(0.5), random_rotation(-5.0..=5.0)]), crop(64)];
        settings.strategy = Strategy::Sequential;
    };
    let found = diagnosed(source(16), heavy, 0);
    if is(&found, TrainingBottleneck::Augmentation) {
        assert!(found.gain.unwrap() > 2.0, "{:?}", found.report.answer);
        assert!(found.report.answer[2].contains("fused"), "{:?}", found.report.answer);
    }
}

#[test]
fn a_slow_step_is_found() {
    let found = diagnosed(source(16), |settings| settings.time = Duration::from_secs(1), 400);
    assert_eq!(found.bottleneck, TrainingBottleneck::Step, "{:?}", found.report.answer);
    assert!(found.gain.unwrap() > 2.0, "{:?}", found.report.answer);
}

#[test]
fn tiny_images_are_found() {
    let tiny = EncodedImages::new((0..16).map(|i| (common::jpeg(8, 8, i), 0)));
    let found = diagnosed(tiny, |settings| settings.ops = vec![CenterCrop::new(8).into()], 0);
    if is(&found, TrainingBottleneck::PerImage) {
        assert!(found.report.answer[2].contains("pack"), "{:?}", found.report.answer);
    }
}

#[test]
fn decoding_is_found() {
    // Long enough that where a busy machine takes the processor away evens out.
    let small = |settings: &mut diagnose::DiagnoseSettings| {
        (settings.ops, settings.time) = (vec![crop(8)], Duration::from_millis(600));
    };
    let found = diagnosed(large(), small, 0);
    is(&found, TrainingBottleneck::Decode);
}

// ---- clocks ----

/// The run's figures must agree with another clock: of the whole, of the step, and of the rest. One of a few runs is
/// enough: between two clocks a busy machine may take the processor away.
#[test]
fn figures_agree_with_a_stopwatch() {
    let disagreements: Vec<_> =
        (0..5).map(|_| disagreements_with_a_stopwatch()).take_while(|wrong| !wrong.is_empty()).collect();
    assert!(disagreements.len() < 5, "{disagreements:?}");
}

fn disagreements_with_a_stopwatch() -> Vec<String> {
    let pipeline =
        Pipeline::builder(source(24)).batch_size(4).threads(2).transform(random_resized_crop(32)).build().unwrap();
    let mut step = Sleeping { length: Duration::from_millis(25), ..Sleeping::default() };
    let mut events = Vec::new();
    let mut on_event = |event: &Event| {
        events.push(event.clone());
        Ok(())
    };
    let start = Instant::now();
    let mut run = TrainingRun::start(&mut step, &mut on_event);
    for epoch in 0..3 {
        run.epoch(&pipeline, epoch, None).unwrap();
    }
    let times = run.finish();
    let whole = start.elapsed().as_secs_f64();
    let mut wrong = Vec::new();
    let mut within = |got: f64, want: f64, what: &str| {
        if (got - want).abs() > 0.03 * want {
            wrong.push(format!("{what}: {got} against {want} by the stopwatch"));
        }
    };
    within(times.seconds, whole, "the run");
    within(times.epochs.iter().map(|epoch| epoch.seconds).sum(), whole, "its epochs");
    let train: f64 = times.epochs.iter().map(|epoch| epoch.train_s).sum();
    within(train, step.slept.as_secs_f64(), "the step");
    // Without the first and the last of each epoch's six batches.
    let setup: f64 = times.epochs.iter().map(|epoch| epoch.setup_s).sum();
    let last: f64 = times.batches.iter().skip(5).step_by(6).map(|batch| batch.fetch_s).sum();
    let (steady, slept) = (SteadyState::of(&times.epochs).unwrap(), step.slept.as_secs_f64());
    let steady_s = whole - setup - last - slept / 3.0;
    within(steady.accelerator_use, slept * 2.0 / 3.0 / steady_s, "accelerator use");
    within(steady.images_per_s, 48.0 / steady_s, "images per second");
    within(steady.epoch_s, 24.0 / 48.0 * steady_s, "seconds per epoch");
    for epoch in &times.epochs {
        within(epoch.setup_s + epoch.fetch_s + epoch.train_s, epoch.seconds, "an epoch's parts");
        assert_eq!((epoch.images, epoch.batches), (24, 6));
    }
    assert_eq!((step.steps, times.batches.len(), times.waits().len()), (18, 18, 15));
    let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Batch { images: 4, .. })), 18);
    assert_eq!(count(|event| matches!(event, Event::SetUp { .. })), 3);
    assert_eq!(count(|event| matches!(event, Event::Epoch { images: 24, loss: Some(_), accuracy: None, .. })), 3);
    wrong
}

/// A training step's view of its own calls: the other clock for whole experiments.
enum Call {
    Epoch(Instant),
    Batch { from: Instant, to: Instant, images: u64 },
}

struct Watched {
    length: Duration,
    calls: Rc<RefCell<Vec<Call>>>,
}

impl TrainingStep for Watched {
    fn name(&self) -> String {
        "watched".to_owned()
    }

    fn begin_epoch(&mut self, _epoch: u64) -> Result<()> {
        self.calls.borrow_mut().push(Call::Epoch(Instant::now()));
        Ok(())
    }

    fn train(&mut self, batch: Batch) -> Result<Outcome> {
        let (from, images) = (Instant::now(), (batch.len() - batch.padding()) as u64);
        std::thread::sleep(self.length);
        drop(batch);
        self.calls.borrow_mut().push(Call::Batch { from, to: Instant::now(), images });
        Ok(Outcome::default())
    }
}

fn watched(calls: &Rc<RefCell<Vec<Call>>>) -> Model {
    let step = Box::new(Watched { length: Duration::from_millis(20), calls: Rc::clone(calls) });
    Model { name: "watched".to_owned(), step }
}

/// Sums over epochs, in seconds but for the images.
#[derive(Debug, Default)]
struct Sums {
    whole: f64,
    setup: f64,
    train: f64,
    images: u64,
    /// Seconds, seconds in the step, and images of each batch after the first of its epoch.
    steady: Vec<Vec<(f64, f64, u64)>>,
}

impl Sums {
    /// By the step's clock: from where an epoch begins to where its last batch ends.
    fn seen(calls: &[Call]) -> Self {
        let (mut sums, mut begun, mut last): (Self, _, Option<Instant>) = (Self::default(), None, None);
        for call in calls {
            match *call {
                Call::Epoch(at) => {
                    (begun, last) = (Some(at), None);
                    sums.steady.push(Vec::new());
                }
                Call::Batch { from, to, images } => {
                    let begun = begun.expect("an epoch before its batches");
                    match last {
                        None => sums.setup += (from - begun).as_secs_f64(),
                        Some(last) => {
                            let times = ((to - last).as_secs_f64(), (to - from).as_secs_f64(), images);
                            sums.steady.last_mut().unwrap().push(times);
                        }
                    }
                    sums.whole += (to - last.unwrap_or(begun)).as_secs_f64();
                    sums.train += (to - from).as_secs_f64();
                    sums.images += images;
                    last = Some(to);
                }
            }
        }
        sums
    }

    /// By the report.
    fn reported<'a>(runs: impl Iterator<Item = &'a Value>) -> Self {
        let mut sums = Self::default();
        for epoch in runs.flat_map(|run| run["epochs"].as_array().unwrap()) {
            sums.whole += epoch["seconds"].as_f64().unwrap();
            sums.setup += epoch["setup_s"].as_f64().unwrap();
            sums.train += epoch["train_s"].as_f64().unwrap();
            sums.images += epoch["images"].as_u64().unwrap();
        }
        sums
    }

    /// Checks agreement within 3 %; short times are compared with the whole.
    fn assert_agree(&self, other: &Self) {
        assert_eq!(self.images, other.images);
        for (a, b) in [(self.whole, other.whole), (self.setup, other.setup), (self.train, other.train)] {
            assert!((a - b).abs() <= 0.03 * self.whole, "reported {self:?}, seen {other:?}");
        }
        assert!((self.train - other.train).abs() <= 0.03 * self.train, "reported {self:?}, seen {other:?}");
    }
}

#[test]
fn the_epochs_of_augment_load_agree_with_a_stopwatch() {
    let calls = Rc::default();
    let settings = augment_load::AugmentLoadSettings {
        loads: vec![1, 4],
        batch_size: 4,
        epochs: 2,
        rounds: 1,
        ..augment_load::AugmentLoadSettings::default()
    };
    let report =
        augment_load(&Subject::new("made", source(20)), &settings, &mut [watched(&calls)], &mut |_| ()).unwrap();
    let cases = report.figures["cases"].as_array().unwrap();
    let reported = Sums::reported(cases.iter().map(|case| &case["runs"][0]));
    reported.assert_agree(&Sums::seen(&calls.borrow()));
    // The table shows the mean of the later epochs.
    let later: f64 = cases.iter().map(|case| case["runs"][0]["epochs"][1]["seconds"].as_f64().unwrap()).sum();
    let shown: f64 = cases.iter().map(|case| case["seconds_per_epoch"]["median"].as_f64().unwrap()).sum();
    assert!((later - shown).abs() < 1e-9, "{later} and {shown}");
}

#[test]
fn the_epochs_of_workers_agree_with_a_stopwatch() {
    let calls = Rc::default();
    let (counts, batch_sizes) = (vec![0, 1, 2], vec![4]);
    let settings = workers::WorkersSettings {
        workers: counts,
        batch_sizes,
        epochs: 2,
        rounds: 2,
        ops: vec![crop(16)],
        evaluation: None,
        others: Vec::new(),
    };
    let mut model = || Ok(watched(&calls));
    let report = workers(&Subject::new("made", source(20)), &settings, &mut model, &mut |_| ()).unwrap();
    let cases = report.figures["cases"].as_array().unwrap();
    let runs = cases.iter().flat_map(|case| case["runs"].as_array().unwrap());
    Sums::reported(runs).assert_agree(&Sums::seen(&calls.borrow()));
}

#[test]
fn the_runs_of_configurations_agree_with_a_stopwatch() {
    let calls = Rc::default();
    let settings = configurations::ConfigurationsSettings {
        threads: vec![1, 2],
        prefetch: vec![2],
        persistent: vec![true, false],
        pinned: vec![true],
        batch_size: 4,
        name: "crop".to_owned(),
        ops: vec![crop(16)],
        strategy: Strategy::Fused,
        time: Duration::from_millis(300),
        rounds: 1,
        gpus: 0,
        baseline: true,
    };
    // Building is in the runs and not in their epochs; what was logged adds up to them too.
    let (mut begun, mut runs_s, mut logged_s) = (None, 0.0, 0.0);
    let mut on_event = |event: &Event| {
        match event {
            Event::RunStart { .. } => begun = Some(Instant::now()),
            Event::RunEnd { .. } => runs_s += begun.unwrap().elapsed().as_secs_f64(),
            Event::SetUp { seconds, .. } => logged_s += seconds,
            Event::Batch { fetch_s, train_s, .. } => logged_s += fetch_s + train_s,
            _ => {}
        }
        Ok(())
    };
    let subject = Subject::new("made", source(20));
    let found = configurations(&subject, &settings, &mut watched(&calls), &mut on_event, &mut |_| ()).unwrap();
    let ranking = found.report.figures["ranking"].as_array().unwrap();
    let reported = Sums::reported(ranking.iter().map(|case| &case["runs"][0]));
    reported.assert_agree(&Sums::seen(&calls.borrow()));
    assert!((logged_s - reported.whole).abs() <= 0.03 * reported.whole, "{logged_s} s logged of {reported:?}");
    let told: f64 = ranking.iter().map(|case| case["runs"][0]["seconds"].as_f64().unwrap()).sum();
    assert!((told - runs_s).abs() <= 0.03 * runs_s, "{told} s told, {runs_s} s by the stopwatch");
}

#[test]
fn the_rates_of_diagnose_agree_with_a_stopwatch() {
    const IMAGES: u64 = 40;
    let (calls, mut progressed) = (Rc::default(), Vec::new());
    let reads: Reads = Arc::default();
    let source = slow(source(IMAGES), Duration::from_millis(5), &reads);
    let mut settings = diagnose::DiagnoseSettings::new([crop(16)]);
    (settings.threads, settings.cores, settings.batch_size) = (2, 2, 4);
    (settings.time, settings.rounds) = (Duration::from_millis(500), 1);
    let subject = Subject::new("made", source);
    // Each part ends when it is told.
    let mut progress = |line: &str| progressed.push((line.to_owned(), Instant::now()));
    let begun = Instant::now();
    let found = diagnose(&subject, &settings, &mut watched(&calls), &mut progress).unwrap();
    let part = |name: &str| {
        let end = progressed.iter().position(|(line, _)| line.contains(&format!(" {name}: "))).unwrap();
        let begin = end.checked_sub(1).map_or(begun, |before| progressed[before].1);
        begin..=progressed[end].1
    };
    let findings = &found.report.figures["findings"];
    let within = |name: &str, seen: f64| {
        let told = findings["rates"][name].as_f64().unwrap();
        assert!((told - seen).abs() <= 0.03 * seen, "{name}: {told} told, {seen} by the stopwatch");
    };
    // The summary of the data set reads every image once, before the first part.
    let reads = reads.lock().unwrap();
    let reading = part("read");
    let read: Vec<_> = reads[IMAGES as usize..].iter().filter(|&at| reading.contains(at)).collect();
    within("read", read.len() as f64 / (*reading.end() - *read[0]).as_secs_f64());
    // The step alone has no epochs.
    let (ready, whole) = (part("step alone"), part("whole"));
    let (alone, together): (Vec<Call>, Vec<Call>) =
        (calls.take().into_iter()).partition(|call| matches!(call, Call::Batch { from, .. } if ready.contains(from)));
    let (mut step, mut images) = (Duration::ZERO, 0);
    for call in &alone {
        let Call::Batch { from, to, images: of_batch } = call else { unreachable!() };
        (step, images) = (step + (*to - *from), images + of_batch);
    }
    within("step", images as f64 / step.as_secs_f64());
    assert!(
        together
            .iter()
            .all(|call| matches!(call, Call::Epoch(at) | Call::Batch { from: at, .. } if whole.contains(at)))
    );
    let (mut steady_s, mut train_s, mut steady_images) = (0.0, 0.0, 0);
    for epoch in Sums::seen(&together).steady {
        // The last batch of a whole epoch, of ten, is not of the steady state.
        for (seconds, train, images) in &epoch[..epoch.len().min(8)] {
            (steady_s, train_s, steady_images) = (steady_s + seconds, train_s + train, steady_images + images);
        }
    }
    within("whole", steady_images as f64 / steady_s);
    let told = findings["accelerator_use"].as_f64().unwrap();
    let seen = train_s / steady_s;
    assert!((told - seen).abs() <= 0.03 * seen, "accelerator use: {told} told, {seen} by the stopwatch");
}

/// A run of a stated time ends in time, in the midst of an epoch.
#[test]
fn a_run_for_a_time_takes_that_time() {
    let pipeline = Pipeline::builder(source(100)).batch_size(1).transform(random_resized_crop(8)).build().unwrap();
    let mut step = Sleeping { length: Duration::from_millis(20), ..Sleeping::default() };
    let mut ignore = |_: &Event| Ok(());
    let mut run = TrainingRun::start(&mut step, &mut ignore);
    run.for_time(&pipeline, Duration::from_millis(300)).unwrap();
    let times = run.finish();
    assert!(times.seconds >= 0.3 && times.images() < 20, "{} s, {} images", times.seconds, times.images());
    assert_eq!(times.epochs.len(), 1);
    // Without an image there is nothing to go round and round.
    let empty = Pipeline::builder(source(1)).limit(0).transform(random_resized_crop(8)).build().unwrap();
    let mut run = TrainingRun::start(&mut step, &mut ignore);
    run.for_time(&empty, Duration::from_secs(60)).unwrap();
    assert_eq!(run.finish().steady(), None);
}

/// CPU time of the calling thread's children in this process that have ended, and of the rest of it.
#[cfg(target_os = "linux")]
fn thread_time(name: &str) -> Option<Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let of = |task: &Path| {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let schedstat = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let ns = schedstat.split(' ').next()?.parse().ok()?;
        (comm.trim() == name).then(|| Duration::from_nanos(ns))
    };
    tasks.filter_map(|task| of(&task.ok()?.path())).max()
}

/// Under 1 % of one core: the sampling thread's own CPU time, which other programs do not change much.
#[test]
#[cfg(target_os = "linux")]
fn sampling_costs_little() {
    let monitor = UsageMonitor::start();
    std::thread::sleep(Duration::from_secs(2));
    let cost = thread_time("warpfeed-usage").expect("the system says what threads have used");
    let usage = monitor.stop();
    assert!(cost < Duration::from_millis(20), "{cost:?} of 2 s");
    assert!(usage.process.len() >= 10, "{} samples", usage.process.len());
    assert!(usage.cores.iter().all(|core| core.len() == usage.process.len()));
}

/// A thread that spins is seen, as much as the system lets it.
#[test]
#[cfg(target_os = "linux")]
fn work_is_seen() {
    let monitor = UsageMonitor::start();
    let (start, before) = (Instant::now(), own_cpu_s());
    // Longer where others take the processors.
    while start.elapsed() < Duration::from_secs(1) || own_cpu_s() - before < 0.3 {
        std::hint::spin_loop();
    }
    let used = own_cpu_s() - before;
    let usage = monitor.stop();
    let sampled = f64::from(usage.process.iter().sum::<f32>()) * usage.interval_s;
    assert!(sampled > 0.7 * used, "{used} s used, {sampled} s seen: {usage:?}");
    assert!(usage.cpu().unwrap().max > 0.1, "{usage:?}");
}

// ---- the experiments ----

/// Seconds of CPU time, by the system's count, that this thread has used.
#[cfg(target_os = "linux")]
fn own_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

#[test]
fn every_case_of_augment_load_is_reported_and_what_cannot_run_is_blank() {
    let subject = Subject::new("made", source(12));
    let suite = Some(Preset::RandAugment);
    let settings = augment_load::AugmentLoadSettings {
        loads: vec![1, 12],
        epochs: 2,
        rounds: 2,
        suite,
        ..augment_load::AugmentLoadSettings::default()
    };
    let mut lines = 0;
    let resnet18 = Model { name: "resnet18".to_owned(), ..model(80) };
    let report = augment_load(&subject, &settings, &mut [Model::none(), resnet18], &mut |_| lines += 1).unwrap();
    let cases = report.figures["cases"].as_array().unwrap();
    assert_eq!(lines, 2 * cases.len());
    for case in cases {
        let (busy, none) = (case["accelerator_use"].as_f64().unwrap(), case["model"] == "none");
        assert!((0.0..=1.0).contains(&busy) && (busy < 0.1 || !none), "{case}");
        let rounds = case["runs"].as_array().unwrap();
        assert!(rounds.len() == 2 && rounds.iter().all(|run| run["epochs"].as_array().unwrap().len() == 2), "{case}");
        // Seconds and images/s are of the same epochs.
        let (seconds, rate) = (&case["steady_seconds_per_epoch"], &case["steady_images_per_s"]);
        assert!((seconds["low"].as_f64().unwrap() * rate["high"].as_f64().unwrap() - 12.0).abs() < 1e-6, "{case}");
    }
    let summary = &report.json()["tables"][0];
    let rows = summary["rows"].as_array().unwrap();
    let column = |name: &str| summary["columns"].as_array().unwrap().iter().position(|column| column == name).unwrap();
    assert_eq!(rows.len(), 4);
    for arm in ["A, CPU, fused, s", "rand-augment, CPU, s"] {
        assert!(rows.iter().all(|row| row[column(arm)].as_f64().unwrap() > 0.0), "{arm}");
    }
    let plain = augment_load::AugmentLoadSettings { suite: Some(Preset::Train), ..settings };
    assert!(augment_load(&subject, &plain, &mut [Model::none()], &mut |_| ()).unwrap_err().is_parameter());
    if Device::Cuda(0).available().is_err() {
        assert_eq!(cases.len(), 12);
        assert!(rows.iter().all(|row| row[column("B, GPU, s")] == Value::Null));
        assert!(report.answer.last().unwrap().contains("not run"), "{:?}", report.answer);
        let result = report.result.as_ref().unwrap();
        let of_b = result.rows.iter().find(|row| row[0].text() == "resnet18, B, GPU, load 12").unwrap();
        assert_eq!((of_b[2].text(), of_b[4].text()), ("not run".to_owned(), "73 % shorter".to_owned()));
        let blank: Vec<&str> =
            report.tables.iter().filter(|table| !table.blank.is_empty()).map(|table| table.name).collect();
        assert_eq!(blank, ["seconds-per-epoch", "growth", "published-utilization", "utilization"]);
        let of_gpu = |table: &&ReportTable| table.blank.iter().any(|reason| reason.contains("GPU"));
        assert_eq!(report.tables.iter().filter(of_gpu).count(), 4, "{:?}", report.tables);
    }
    // Ours and what was published by one measure: times A at load 1.
    let growth = report.tables.iter().find(|table| table.name == "growth").unwrap();
    let at = |row: usize, name: &str| {
        growth.rows[row][growth.columns.iter().position(|column| column == name).unwrap()].text()
    };
    assert_eq!((at(2, "A, CPU, sequential"), at(2, "published A")), ("1.00".to_owned(), "1.00".to_owned()));
    assert_eq!((at(3, "published A"), at(3, "published B")), ("1.87".to_owned(), "0.51".to_owned()));
    assert!(at(1, "published A").is_empty() && report.publications[0].url.contains("nvidia-dali"));
    assert_eq!(report.tables.iter().find(|table| table.name == "published").unwrap().rows.len(), 12);
    let svgs: Vec<&str> = report.plots.iter().map(|plot| &plot.name[..]).collect();
    for name in [
        "seconds-none",
        "growth-none",
        "growth-resnet18",
        "saved-published",
        "utilization-resnet18-a-cpu-fused",
        "timeline-resnet18-a-cpu-sequential",
    ] {
        assert!(svgs.contains(&name), "{name} of {svgs:?}");
    }
    // The case that is compared has one axis of time.
    let ends = |kind: &str| -> Vec<String> {
        let of_kind = report.plots.iter().filter(|plot| plot.name.starts_with(kind));
        of_kind.map(|plot| plot.svg.rsplit(" s<").nth(1).unwrap().rsplit('>').next().unwrap().to_owned()).collect()
    };
    for kind in ["timeline-", "utilization-"] {
        let ends = ends(kind);
        assert!(ends.len() >= 2 && ends.iter().all(|end| *end == ends[0]), "{kind}: {ends:?}");
    }
}

#[test]
fn the_workers_grid_has_every_epoch_and_says_what_it_left_out() {
    let subject = Subject::new("made", source(20));
    let (counts, batch_sizes) = (vec![0, 2], vec![4, 1000]);
    let ops = vec![crop(16)];
    let settings = workers::WorkersSettings {
        workers: counts,
        batch_sizes,
        epochs: 2,
        rounds: 1,
        ops,
        evaluation: Some(source(6).into()),
        others: Vec::new(),
    };
    let report = workers(&subject, &settings, &mut || Ok(model(1)), &mut |_| ()).unwrap();
    let json = report.json();
    let named = |name: &str| json["tables"].as_array().unwrap().iter().find(|table| table["name"] == name).unwrap();
    let grid = named("grid");
    let rows = grid["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "two epochs each of 0 and 2 workers");
    assert_eq!((&rows[0][8], &rows[0][9], &rows[3][9]), (&4.0.into(), &0.0.into(), &2.0.into()));
    // The step tells 1, 1/2, ... 1/5 in the first epoch.
    assert!((rows[0][3].as_f64().unwrap() - 137.0 / 300.0).abs() < 1e-9, "{}", rows[0][3]);
    assert_eq!((&rows[0][4], &rows[0][7]), (&Value::Null, &"0.01".into()));
    assert!(rows[0][6].as_f64() < rows[1][6].as_f64(), "the run's duration grows");
    let blank = &report.tables[0].blank;
    assert!(blank.len() == 1 && blank[0].contains("1000") && blank[0].contains("20 images"), "{blank:?}");
    assert!(report.answer[0].contains("cannot tell how many"), "one round proves nothing: {:?}", report.answer);
    assert!(report.answer[1].contains("The longest epoch that was measured has 5 batches"), "{:?}", report.answer);
    assert_eq!(report.settings["images_per_epoch"], 20);
    // Batches of 4 and 2 images, evaluated after the run.
    let each = &named("cases")["rows"];
    assert_eq!(each.as_array().unwrap().len(), 2);
    assert!((each[0][4].as_f64().unwrap() - 100.0 * (4.0 * 0.5 + 2.0) / 6.0).abs() < 1e-9, "{each}");
    let of_run = |row: &Value| row[2].as_f64().unwrap() > 0.0 && (0.0..=100.0).contains(&row[3].as_f64().unwrap());
    assert!(each.as_array().unwrap().iter().all(of_run), "{each}");
    assert_eq!((report.tables.last().unwrap().name, report.publications.len()), ("utilization", 3));
    let lines = |name: &str| report.tables.iter().find(|table| table.name == name).unwrap().rows.len();
    assert_eq!(["published-gluon", "published-grid", "published-io"].map(lines), [5, 18, 5]);
    let plots: Vec<&str> = report.plots.iter().map(|plot| plot.name.as_str()).collect();
    assert!(plots.contains(&"seconds-per-epoch"), "{plots:?}");
}

#[test]
fn images_stored_in_other_ways_are_measured_beside_the_given_ones() {
    let subject = Subject { device: Device::Cpu, ..Subject::new("made", source(8)) };
    let folder = tempfile::tempdir().unwrap();
    let settings = workers::WorkersSettings {
        workers: vec![1, 3],
        batch_sizes: vec![2],
        epochs: 1,
        rounds: 1,
        ops: vec![crop(16)],
        evaluation: None,
        others: vec![
            Stored::resized(source(8), 32, folder.path().join("cache"), 1 << 20),
            Stored::other("shards", source(8)),
            Stored::sleeping(source(8), Duration::from_millis(60)).unwrap(),
        ],
    };
    let report = workers(&subject, &settings, &mut || Ok(Model::none()), &mut |_| ()).unwrap();
    let names: Vec<String> =
        report.tables[0].rows.iter().map(|row| format!("{} {}", row[0].text(), row[1].text())).collect();
    let of = |name: &str| [format!("{name} 1"), format!("{name} 3")];
    let want = [of("as given"), of("resized to 32"), of("shards"), of("sleeping 60 ms")].concat();
    assert_eq!(names, want);
    assert!(folder.path().join("cache").read_dir().unwrap().next().is_some(), "images were resized ahead of time");
    // Three that sleep get about three times what one gets; none gets more than one image in each 60 ms.
    let rate = |row: usize| report.json()["tables"][0]["rows"][row][4].as_f64().unwrap();
    assert!(rate(6) < 17.0 && rate(7) < 51.0 && rate(7) > 1.5 * rate(6), "{} and {}", rate(6), rate(7));
    let result = report.result.unwrap();
    let compared =
        |row: &Vec<Cell>| row[0].text() == "SageMaker I/O: shards, 1 worker" && row[1].text() == "images as given";
    assert!(result.rows.iter().any(compared), "{result:?}");
}

#[test]
fn the_smallest_configuration_that_is_as_good_is_chosen() {
    let subject = Subject::new("made", source(16));
    let settings = configurations::ConfigurationsSettings {
        threads: vec![1, 2],
        prefetch: vec![1],
        persistent: vec![true, false],
        pinned: vec![true],
        batch_size: 4,
        name: "crop".to_owned(),
        ops: vec![crop(8)],
        strategy: Strategy::Fused,
        time: Duration::from_millis(150),
        // The fewest that can tell the 10 pairs of five configurations apart.
        rounds: 7,
        gpus: 0,
        baseline: true,
    };
    let (mut starts, mut ends, mut batches) = (0, 0, 0);
    let mut on_event = |event: &Event| {
        match event {
            Event::RunStart { .. } => starts += 1,
            Event::RunEnd { .. } => ends += 1,
            Event::Batch { .. } => batches += 1,
            _ => {}
        }
        Ok(())
    };
    // The step is so slow that one thread is enough.
    let found = configurations(&subject, &settings, &mut model(60), &mut on_event, &mut |_| ()).unwrap();
    assert_eq!((starts, ends), (35, 35));
    assert!(batches >= 70);
    let ranking = found.report.figures["ranking"].as_array().unwrap();
    assert_eq!(ranking.len(), 5);
    let baseline = ranking.iter().find(|case| case["configuration"]["threads"] == 0).unwrap();
    assert_eq!(baseline["times_the_baseline"], 1.0);
    let smallest = found.smallest.unwrap();
    assert!((1..=found.best.threads).contains(&smallest.threads));
    assert!(found.report.answer[0].ends_with(&smallest.options()), "{:?}", found.report.answer);
    for name in ["timeline-baseline", "times-the-baseline"] {
        assert!(found.report.plots.iter().any(|plot| plot.name == name), "{name}");
    }
    let table = |name: &str| found.report.tables.iter().find(|table| table.name == name).unwrap();
    let times = table("times-the-baseline");
    let of_own =
        ranking.iter().find(|case| case["configuration"] == serde_json::to_value(found.best).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&times.rows[1][1]).unwrap(), of_own["times_the_baseline"]);
    assert_eq!(
        (times.rows.len(), times.rows[2][1].text(), times.rows[3][1].text()),
        (5, "35.00".into(), "15.00".into())
    );
    let ceiling = times.rows[4][1].text().parse::<f64>().unwrap();
    assert!(ceiling >= 0.95 * of_own["times_the_baseline"].as_f64().unwrap(), "{ceiling} of {times:?}");
    assert!(table("utilization").rows.iter().any(|row| row[0].text() == "baseline" && row[1].text() == "CPU"));
    // Batches of 4 in 60 ms.
    let figures = &found.report.figures;
    let [of_core, of_step, cores] =
        ["images_per_s_a_core", "images_per_s_of_the_step", "cores_needed"].map(|name| figures[name].as_f64().unwrap());
    assert!((40.0..=4.0 / 0.06).contains(&of_step) && (cores - of_step / of_core).abs() < 1e-9, "{figures}");
    let none = configurations::ConfigurationsSettings { threads: Vec::new(), ..settings };
    assert!(configurations(&subject, &none, &mut model(0), &mut |_| Ok(()), &mut |_| ()).unwrap_err().is_parameter());
}

// ---- the command ----

fn command(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).output().unwrap()
}

#[test]
fn the_command_writes_reports_and_whole_lines_of_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (images, out) = (path("images"), path("out"));
    assert!(command(&["synth", &images, "--count", "12", "--classes", "2"]).status.success());
    let grid = ["--threads", "1", "--prefetch", "1,2", "--batch-size", "4", "--seconds", "0.1", "--rounds", "1"];
    let run = command(&[&["bench", "configurations", &images, "--out", &out], &grid[..]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.contains("Cannot tell which configuration") && text.contains("12 images in 2 classes"), "{text}");
    assert!(text.contains("Command: warpfeed bench configurations"), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out/report.json")).unwrap()).unwrap();
    assert_eq!((&report["experiment"], &report["data_set"]["images"]), (&"configurations".into(), &12.into()));
    for file in ["report.html", "ranking.csv", "ranking.svg", "timeline.svg"] {
        assert!(std::fs::metadata(folder.path().join("out").join(file)).unwrap().len() > 100, "{file}");
    }
    let events = std::fs::read_to_string(folder.path().join("out/events.jsonl")).unwrap();
    assert!(events.ends_with('\n'));
    let names: Vec<String> = (events.lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((&names[0][..], &names[names.len() - 1][..]), ("run_start", "run_end"));
    assert!(names.iter().any(|name| name == "batch"));

    let tuned = command(&[&["tune", &images, "--step", "5"], &grid[..]].concat());
    let text = String::from_utf8(tuned.stdout).unwrap();
    assert!(text.contains("the images need") && text.contains("train after 12 flips and rotations"), "{text}");
    assert!(text.contains("packed with restarts") && text.contains("from the image cache"), "{text}");
    assert!(text.contains("Fastest measured: 1 thread") && !text.contains("Options: "), "one round: {text}");
    let one = ["--threads", "1", "--prefetch", "2", "--batch-size", "4", "--seconds", "0.1", "--rounds", "1"];
    let tuned = command(&[&["tune", &images, "--preset", "rand-augment"], &one[..]].concat());
    let text = String::from_utf8(tuned.stdout).unwrap();
    assert!(text.contains("Options: --threads 1 --prefetch 2"), "{text}");
    assert!(text.contains("Code: .threads(1).prefetch(2)") && text.contains("\nrand-augment "), "{text}");

    // Any operations can be measured.
    let file = path("transforms.json");
    let crop = r#"{"transform": "random_resized_crop", "size": [32, 32]}"#;
    let blurs = r#"{"op": "dilate", "kernel": 3}, {"op": "gaussian_blur", "kernel": 5, "sigma": 1.5}"#;
    std::fs::write(&file, format!("[{crop}, {blurs}]")).unwrap();
    let blurred =
        command(&[&["bench", "configurations", &images, "--transforms", &file, "--json"], &grid[..]].concat());
    let report: Value = serde_json::from_slice(&blurred.stdout).unwrap();
    let measured = report["settings"]["transforms"].to_string();
    assert!(measured.contains("dilate") && measured.contains("gaussian_blur"), "{measured}");

    for (args, words) in [
        (&["bench", "workers", &images, "--step", "resnet9000"][..], "resnet18"),
        (&["bench", "diagnose", &path("nowhere")], "nowhere"),
        (&["bench", "peers", "--from", &path("nothing.json")], "nothing.json"),
        (&["bench", "peers", &images, "--script", &path("no-script")], "give --script"),
    ] {
        let failed = command(args);
        let message = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && message.contains(words), "{args:?}: {message}");
    }
    // Known before anything is measured.
    let a_file = path("out/ranking.csv");
    for (args, words) in [(["--out", &a_file], "cannot create"), (["--seconds", "0"], "more than 0")] {
        let failed = command(&[&["bench", "diagnose", &images], &args[..]].concat());
        let message = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && message.contains(words) && !message.contains("1/6"), "{message}");
    }
}

/// Any stream that `run` takes: one that can be read again, and one that cannot.
#[test]
fn streams_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (images, shards) = (path("images"), path("shards"));
    assert!(command(&["synth", &images, "--count", "24", "--classes", "2"]).status.success());
    assert!(command(&["pack", &images, "-o", &shards, "--format", "webdataset"]).status.success());
    let report = |command: &mut Command| -> Value {
        let run = command.output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        serde_json::from_slice(&run.stdout).unwrap()
    };
    let own = env!("CARGO_BIN_EXE_warpfeed");
    for args in [
        "bench diagnose --seconds 0.05 --rounds 1",
        "bench workers --workers 0,1 --batch-sizes 8 --epochs 1 --rounds 1",
        "bench augment-load --loads 1 --models none --epochs 1 --rounds 1",
        "tune --threads 1 --prefetch 1 --seconds 0.05 --rounds 1",
    ] {
        let streamed = report(Command::new(own).args(args.split(' ')).args([&shards, "--window", "8", "--json"]));
        let data_set = &streamed["data_set"];
        assert_eq!((&data_set["images"], &data_set["looked_at"]), (&Value::Null, &24.into()), "{args}");
        let command = streamed["command"].as_str().unwrap();
        assert!(command.starts_with(&format!("warpfeed {args} ")), "{command}");
    }
    // A pipe's images are kept.
    let shard = std::fs::read_dir(&shards).unwrap().map(|entry| entry.unwrap().path());
    let shard = shard.filter(|path| path.extension().is_some_and(|ending| ending == "tar")).min().unwrap();
    let piped = |args: &str| {
        let mut command = Command::new(own);
        command.args(args.split(' ')).args(["-", "--format", "webdataset", "--json"]);
        report(command.stdin(std::fs::File::open(&shard).unwrap()))
    };
    let found = piped("bench diagnose --seconds 0.05 --rounds 1 --limit 16");
    assert_eq!((&found["data_set"]["images"], &found["data_set"]["images_per_epoch"]), (&16.into(), &16.into()));
    assert!(found["notes"][0].as_str().unwrap().contains("kept in memory"), "{found}");
    assert_eq!(piped("tune --threads 1 --prefetch 1 --seconds 0.05 --rounds 1")["data_set"]["images"], 24);
}

/// Networks that candle trains, through the command: reports name them, and say what they lost and how well they did.
#[test]
fn the_command_trains_with_candle() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images").to_str().unwrap().to_owned();
    assert!(command(&["synth", &images, "--count", "8", "--classes", "2"]).status.success());
    let report = |args: &str| -> Value {
        let args: Vec<&str> = args.split(' ').collect();
        let run = command(&[&["bench", args[0], &images, "--width", "2", "--json"], &args[1..]].concat());
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        serde_json::from_slice(&run.stdout).unwrap()
    };
    let options = "--loads 1 --strategies fused --epochs 2 --rounds 1 --batch-size 4";
    let trained = report(&format!("augment-load --models candle-resnet18,candle-resnet50 {options}"));
    for (number, network) in ["ResNet18", "ResNet50"].into_iter().enumerate() {
        let step = &trained["settings"]["models"][number]["step"];
        assert_eq!(step, &format!("{network} of width 2, trained with candle on the CPU"), "{trained}");
        let epoch = &trained["figures"]["cases"][number]["runs"][0]["epochs"][1];
        assert!(epoch["loss"].as_f64().unwrap() > 0.0, "{epoch}");
        assert!((0.0..=1.0).contains(&epoch["accuracy"].as_f64().unwrap()), "{epoch}");
    }
    let options = "--workers 1 --batch-sizes 4 --size 32 --epochs 1 --rounds 1 --learning-rate 0.05";
    let grid = report(&format!("workers --step candle-resnet50 {options}"));
    let table = |report: &Value, name: &str| {
        report["tables"].as_array().unwrap().iter().find(|table| table["name"] == name).unwrap().clone()
    };
    let row = &table(&grid, "grid")["rows"][0];
    assert!(row[3].as_f64().unwrap() > 0.0 && row[4].as_f64().is_some() && row[7] == "0.05", "{grid}");
    let options = "--workers 1 --batch-sizes 4 --size 28 --epochs 1 --rounds 1 --learning-rate 0.01";
    let grid = report(&format!("workers --step candle-cnn --eval {images} {options}"));
    assert_eq!(grid["settings"]["step"], "TwoConvolutions, trained with candle on the CPU");
    assert!((0.0..=100.0).contains(&table(&grid, "cases")["rows"][0][4].as_f64().unwrap()), "{grid}");
    let wrong = command(&["bench", "workers", &images, "--step", "candle-resnet101"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("candle-resnet50"));
}

/// The results with boxes and masks have a report of their own.
#[test]
fn results_of_the_peers_with_boxes_and_masks_are_reported() {
    let own = |contender: &str, rate: f64| {
        let mut run = serde_json::json!({"row": "ssd", "contender": contender, "round": 1, "images": 96});
        run["images_per_s"] = rate.into();
        run
    };
    let mut later = own("warpfeed", 900.0);
    (later["user_ms"], later["read_ms"], later["decode_ms"], later["augment_ms"]) =
        (2.0.into(), 0.1.into(), 0.5.into(), 1.25.into());
    let peer = |contender: &str, rate: f64| {
        let mut run = own(contender, rate);
        (run["user_ms"], run["first_images_per_s"]) = (8.0.into(), 33.0.into());
        run
    };
    let given = serde_json::json!({
        "machine": {"date": "2026-11-25", "cpu": "a processor", "cores": 2, "memory_bytes": 1, "system": "Linux",
            "load_average_1min": 0.0, "versions": {"warpfeed": "0.1.0"}},
        "settings": {"rounds": 2, "threads": 2, "repeat": 1, "images": 96},
        "detection": [later, own("warpfeed-first", 450.0), peer("torchvision-v2", 100.0), peer("torchvision-v2", 140.0),
            peer("albumentations", 225.0)]
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("detection.json");
    std::fs::write(&file, given.to_string()).unwrap();
    let run = command(&["bench", "peers", "--from", file.to_str().unwrap(), "--json"]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let answer = "ssd: 900 images/s, 4.0 times those of the fastest of the others, albumentations (2.0 times in the first \
                  epoch).";
    assert_eq!((&report["answer"], &report["experiment"]), (&serde_json::json!([answer]), &"peers-detection".into()));
    let table = &report["tables"][0]["rows"];
    let torchvision =
        serde_json::json!(["ssd", "torchvision v2 on PIL images", 120.0, 100.0, 140.0, 33.0, 8.0, 7.5, 4.0]);
    assert_eq!((&table[2], table.as_array().unwrap().len()), (&torchvision, 4));
    assert_eq!(report["tables"][1]["rows"], serde_json::json!([["ssd", 0.1, 0.5, 1.25]]));
    assert_eq!(report["plots"].as_array().unwrap().len(), 1);
}

/// The committed results are the report of the peers too.
#[test]
fn results_of_the_peers_are_reported() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/results/2026-11-21-cpu-amd-epyc-2-cores.json");
    let run = command(&["bench", "peers", "--from", results, "--json"]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let given: Value = serde_json::from_str(&std::fs::read_to_string(results).unwrap()).unwrap();
    let row = &report["tables"][0]["rows"][1];
    assert_eq!((&row[0], &row[1]), (&"train".into(), &"DALI".into()));
    assert_eq!(row[2], given["medians"]["train"]["dali"]["images_per_s"]);
    assert_eq!(report["environment"]["cpu"], given["machine"]["cpu"]);
}
