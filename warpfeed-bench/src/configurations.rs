//! Finds the pipeline configurations that keep a training step of a given length busy, and the smallest of them.

// Configurations are ranked by the steady state: images per second after the first batch of each epoch. Set-up is told
// apart, so that the answer is the same for a data set of 200 images and for one of 1,000. Entry points are off for the
// same reason: they make an image faster that has come before, and images of a small set come again while a
// configuration is measured.

use super::cores::Machine;
use super::environment::available_memory_bytes;
use super::events::Event;
use super::published::{BASELINE_EPOCHS, LARGER_SCALE, TIMES_THE_BASELINE, WORKER_CORES};
use super::report::plot::{Bar, Limit, bars, bars_with_limit, histogram, timeline};
use super::report::{Cell, Report, ReportTable};
use super::spread::{Spread, turns, with_rounds};
use super::subject::{Model, Subject, no_gpu};
use super::train::{LANES, NO_STEP_S, RunTimes, SteadyState, TrainingRun, about_setup, skipped};
use super::usage::{Percentiles, Usage, UsageMonitor, percentiles, too_few};
use super::utilization;
use super::verdict::{self, Choice, Verdict, default_rounds, in_turn, level, pairs};
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};
use warpfeed::ops::Transform;
use warpfeed::{EntryPoints, Error, Pipeline, PipelineBuilder, Result, Strategy};

/// Number of bars in the plot: the best configurations.
const SHOWN: usize = 12;

/// Fewest waits of which a histogram tells more than their percentiles.
const FEWEST_WAITS: usize = 10;

/// Settings of the experiment.
#[derive(Debug, Clone)]
pub struct ConfigurationsSettings {
    /// Numbers of worker threads.
    pub threads: Vec<usize>,
    /// Numbers of prefetched batches.
    pub prefetch: Vec<usize>,
    /// Whether the pipeline, with its decoders and memory, is kept from epoch to epoch or built anew for each.
    pub persistent: Vec<bool>,
    /// Whether copies to a GPU are staged in pinned memory ([`PipelineBuilder::pinned`]). Has no effect on the CPU.
    pub pinned: Vec<bool>,
    /// Images in a batch.
    pub batch_size: usize,
    /// Name of the operations in tables: that of a preset or a file.
    pub name: String,
    /// The operations. They must end in one size.
    pub ops: Vec<Transform>,
    /// Strategy by which they are run.
    pub strategy: Strategy,
    /// Time for each configuration and round.
    pub time: Duration,
    /// Measurements of each configuration, in turn with the others. With fewer than
    /// [`default_rounds`], smaller differences remain hidden.
    pub rounds: u32,
    /// GPUs that train. Each keeps a core or two for its trainer.
    pub gpus: usize,
    /// Whether the baseline is measured too: no worker thread, one batch at a time, everything built anew for each
    /// epoch.
    pub baseline: bool,
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Configuration {
    /// Number of worker threads.
    pub threads: usize,
    /// Number of prefetched batches.
    pub prefetch: usize,
    /// Whether the pipeline is kept from epoch to epoch.
    pub persistent: bool,
    /// Whether copies to the GPU are staged in pinned memory; `None` on the CPU.
    pub pinned: Option<bool>,
}

impl Configuration {
    fn is_baseline(self) -> bool {
        self.threads == 0
    }

    fn name(self) -> String {
        if self.is_baseline() {
            return "baseline".to_owned();
        }
        let kept = if self.persistent { "" } else { ", built anew" };
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let staged = if self.pageable() { ", pageable" } else { "" };
        format!("{} {threads}, prefetch {}{staged}{kept}", self.threads, self.prefetch)
    }

    fn pageable(self) -> bool {
        self.pinned == Some(false)
    }

    /// The configuration as options of the command.
    #[must_use]
    pub fn options(self) -> String {
        let staged = if self.pageable() { " --pageable" } else { "" };
        format!("--threads {} --prefetch {}{staged}", self.threads, self.prefetch)
    }

    /// The configuration as calls of [`PipelineBuilder`].
    #[must_use]
    pub fn code(self) -> String {
        let staged = if self.pageable() { ".pinned(false)" } else { "" };
        format!(".threads({}).prefetch({}){staged}", self.threads, self.prefetch)
    }
}

/// Results of the experiment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RankedConfigurations {
    /// The report.
    pub report: Report,
    /// The configuration that was measured to be the fastest.
    pub best: Configuration,
    /// The smallest configuration that is as good as the fastest; `None` if so few rounds cannot tell.
    pub smallest: Option<Configuration>,
    /// Images per second that the training step alone takes; `None` if it takes no time.
    pub step_images_per_s: Option<f64>,
    /// Images per second that one core makes while the step runs, in each round; none for a step that takes no time.
    images_per_s_a_core: Vec<f64>,
    /// Level of the report's comparisons.
    level: f64,
}

/// Numbers of worker threads to try on `cores` processors: 1, 2, 3, 4, 6, 8, 12, ... and all available ones. Each of
/// `gpus` trainers keeps one processor, or two if there are more than eight per trainer.
///
/// ```
/// use warpfeed_bench::configurations::worker_counts;
/// assert_eq!(worker_counts(2, 0), [1, 2]);
/// assert_eq!(worker_counts(2, 1), [1]);
/// assert_eq!(worker_counts(16, 1), [1, 2, 3, 4, 6, 8, 12, 14]);
/// assert_eq!(worker_counts(64, 8), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 56]);
/// ```
#[must_use]
pub fn worker_counts(cores: usize, gpus: usize) -> Vec<usize> {
    let most = Machine { cores, gpus }.for_images().max(1);
    let mut counts: Vec<usize> =
        (0..usize::BITS - 1).flat_map(|i| [1 << i, 3 << i]).take_while(|&count| count <= 2 * most).collect();
    counts.retain(|&count| count < most);
    counts.push(most);
    counts.sort_unstable();
    counts
}

/// Number of rounds to measure for so many configurations, the baseline included.
#[must_use]
pub fn rounds_for(configurations: usize) -> u32 {
    // Half of the level may be left for the speed of a core.
    default_rounds(2 * (pairs(configurations) + 1))
}

/// Results of one configuration.
struct Case {
    configuration: Configuration,
    rounds: Vec<Round>,
    /// Utilization in each round.
    usage: Vec<Usage>,
}

struct Round {
    /// Seconds spent on building pipelines.
    build_s: f64,
    run: RunTimes,
}

impl Round {
    fn steady(&self) -> Option<SteadyState> {
        SteadyState::of(&self.run.epochs)
    }

    fn images_per_s(&self) -> f64 {
        self.steady().map_or(0.0, |steady| steady.images_per_s)
    }

    /// Seconds of set-up for each epoch: building the pipeline, where that is done anew, and the first batch.
    fn setup_s(&self) -> f64 {
        let epochs = self.run.epochs.len().max(1) as f64;
        (self.build_s + self.run.epochs.iter().map(|epoch| epoch.setup_s).sum::<f64>()) / epochs
    }
}

impl Case {
    fn figures(&self, of: impl Fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    fn spread(&self, of: impl Fn(&Round) -> f64) -> Spread {
        let none = Spread { median: 0.0, low: 0.0, high: 0.0, rounds: 0 };
        Spread::of(&self.figures(of)).unwrap_or(none)
    }

    fn images_per_s(&self) -> Spread {
        self.spread(Round::images_per_s)
    }

    fn accelerator_use(&self) -> f64 {
        self.spread(|round| round.steady().map_or(0.0, |steady| steady.accelerator_use)).median
    }

    /// Images per second that one core makes, in each round, and images per second that the step takes. `None` for a
    /// step that takes no time.
    fn of_core_and_step(&self) -> Option<(Vec<f64>, f64)> {
        let runs = || self.rounds.iter().map(|round| &round.run);
        let images = runs().map(RunTimes::images).sum::<u64>() as f64;
        let working = |run: &RunTimes| run.stages.read + run.stages.decode + run.stages.augment;
        let of_core = runs().filter(|run| working(run) > 0.0).map(|run| run.images() as f64 / working(run)).collect();
        let training: f64 = runs().flat_map(|run| &run.epochs).map(|epoch| epoch.train_s).sum();
        let batches = runs().flat_map(|run| &run.epochs).map(|epoch| epoch.batches).sum::<u64>() as f64;
        (training / batches > NO_STEP_S).then(|| (of_core, images / training))
    }

    /// Waits of all rounds, without the first of each epoch.
    fn waits(&self) -> Vec<f64> {
        self.rounds.iter().flat_map(|round| round.run.waits()).collect()
    }
}

/// Measures every configuration against a model's training step. `on_event` gets every event, in order; `progress` is
/// called for each configuration.
///
/// # Errors
/// [`Error::Parameter`] if the settings have no configuration, or none fits into memory; errors of pipelines and the
/// step.
pub fn configurations(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    model: &mut Model,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
    progress: &mut dyn FnMut(&str),
) -> Result<RankedConfigurations> {
    let mut found = measure_all(subject, settings, model, 1, on_event, progress)?;
    let machine = Machine::here(settings.gpus);
    let (of_core, of_step) = (&found.images_per_s_a_core, found.step_images_per_s);
    found.report.answer.extend(of_step.and_then(|of_step| machine.sentence(of_core, of_step, found.level)));
    found.report.answer.extend(found.smallest.and_then(|smallest| machine.shared(smallest.threads)));
    machine.add_figures(&mut found.report, Spread::of(of_core).map(|of_core| of_core.median), of_step);
    Ok(found)
}

/// Measures every configuration and ranks them. `shares`: the share of the report's level is one of so many.
pub(super) fn measure_all(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    model: &mut Model,
    shares: usize,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
    progress: &mut dyn FnMut(&str),
) -> Result<RankedConfigurations> {
    let question = "Which configuration keeps the trainer busy, and which is the smallest that does?";
    let mut report = subject.report("configurations", question)?;
    let Grid { configurations: grid, too_large, device } = grid(subject, settings)?;
    let mut cases: Vec<Case> =
        grid.into_iter().map(|configuration| Case { configuration, rounds: Vec::new(), usage: Vec::new() }).collect();
    let turns = turns(cases.len(), settings.rounds, subject.seed);
    let all = turns.len();
    for (done, (round, number)) in turns.into_iter().enumerate() {
        let case = &mut cases[number];
        let monitor = UsageMonitor::start();
        let measured = measure(subject, settings, case.configuration, model, round, on_event)?;
        case.usage.push(monitor.stop());
        progress(&format!("{}/{all} {}: {:.0} images/s", done + 1, case.configuration.name(), measured.images_per_s()));
        case.rounds.push(measured);
    }
    report.measured();
    let rates = |case: &Case| case.figures(Round::images_per_s);
    let measured: Vec<(Configuration, Vec<f64>)> = cases.iter().map(|case| (case.configuration, rates(case))).collect();
    let Some(ranking) = Ranking::of(measured, shares) else {
        let got = too_large.unwrap_or_else(|| "none".to_owned());
        return Err(Error::parameter(
            "configurations",
            "threads, prefetch, persistent and pinned",
            "one that fits",
            got,
        ));
    };
    cases.sort_by(|a, b| b.images_per_s().median.total_cmp(&a.images_per_s().median));
    let find = |configuration: Configuration| {
        cases.iter().find(|case| case.configuration == configuration).unwrap_or(&cases[0])
    };
    let baseline = cases.iter().find(|case| case.configuration.is_baseline());
    let (fastest, smallest) = (ranking.fastest(), ranking.smallest());
    let (best, shown) = (find(fastest), find(smallest.unwrap_or(fastest)));
    report.answer = ranking.answer();
    let (setup, needed) = (shown.spread(Round::setup_s), shown.of_core_and_step());
    let busy = match needed {
        Some(_) => format!("accelerator use {:.1} %; ", 100.0 * shown.accelerator_use()),
        None => String::new(),
    };
    report.answer.push(format!(
        "{}: {busy}set-up {:.3} s for each epoch ({:.3} to {:.3}).",
        shown.configuration.name(),
        setup.median,
        setup.low,
        setup.high
    ));
    let of_step = needed.as_ref().map(|(_, of_step)| *of_step);
    report.answer.extend(baseline.map(|baseline| {
        let name = shown.configuration.name();
        beside_published(&name, shown.images_per_s().median, baseline.images_per_s().median, of_step)
    }));
    report.answer.extend(about_setup(cases.iter().flat_map(|case| &case.rounds).map(|round| &round.run)));
    report.settings = json!({
        "device": device, "transforms": settings.ops, "strategy": settings.strategy, "threads": settings.threads,
        "prefetch": settings.prefetch, "persistent": settings.persistent,
        "pinned": best.configuration.pinned.map(|_| &settings.pinned), "batch_size": settings.batch_size,
        "step": model.about(), "rounds": settings.rounds.max(1), "seconds_a_round": settings.time.as_secs_f64(),
        "images_per_epoch": subject.len(), "seed": subject.seed,
    });
    let usage = cases.iter().map(|case| (vec![case.configuration.name().into()], &case.usage[..]));
    report.tables = vec![ranked(&cases, baseline, &ranking)];
    let against = baseline.map(|baseline| Against::of((smallest.map(find), best), baseline, of_step));
    report.tables.extend(against.as_ref().map(Against::table));
    report.tables.push(worker_cores(Machine::here(settings.gpus)));
    report.tables.push(utilization::table(&["configuration"], usage));
    report.publications.push(LARGER_SCALE);
    if best.configuration.pinned.is_none() {
        let reason = no_gpu().unwrap_or_else(|| "the operations run on the CPU".to_owned());
        report.tables[0].blank.push(format!("pinned: nothing is copied to a GPU ({reason})."));
    }
    let notes = [
        Some(verdict::note(settings.rounds)),
        Some(verdict::choice_note()),
        Some(utilization::NOTE.to_owned()),
        Some("Set-up is building the pipeline and waiting for the first batch of each epoch. Images/s and accelerator use are of the batches between set-up and the end of an epoch.".to_owned()),
        Some("Entry points are off, since they make images faster that have come before, however many images there are: later epochs of a training may be faster.".to_owned()),
        best.configuration.pinned.map(|_| {
            "Pinned: what is copied to the GPU is staged in pinned memory, or in pageable memory.".to_owned()
        }),
        too_large,
        skipped(cases.iter().flat_map(|case| &case.rounds).map(|round| &round.run)),
    ];
    report.notes.extend(notes.into_iter().flatten());
    plots(&mut report, &cases, (smallest.map(find), best), baseline, against);
    report.figures = json!({
        "best": fastest, "smallest": smallest,
        "ranking": cases.iter().map(|case| json!({
            "configuration": case.configuration, "steady_images_per_s": with_rounds(&rates(case)),
            "against_the_fastest": ranking.verdict(case.configuration),
            "times_the_baseline": baseline.map(|baseline| times(case, baseline)),
            "setup_s": with_rounds(&case.figures(Round::setup_s)), "wait_s": percentiles(&case.waits()),
            "utilization": utilization::figures(&case.usage),
            "runs": case.rounds.iter().map(|round| &round.run).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    });
    let images_per_s_a_core = needed.map(|(of_core, _)| of_core).unwrap_or_default();
    let level = ranking.level;
    Ok(RankedConfigurations { best: fastest, smallest, step_images_per_s: of_step, images_per_s_a_core, level, report })
}

/// Rates of all configurations by round, and the choice among them.
pub(super) struct Ranking {
    /// The configurations, the smallest first, and the baseline last, if there is one.
    cases: Vec<(Configuration, Vec<f64>)>,
    choice: Choice,
    level: f64,
}

impl Ranking {
    /// Ranks configurations by their images per second in each round. `None` if there is none but the baseline.
    pub(super) fn of(mut cases: Vec<(Configuration, Vec<f64>)>, shares: usize) -> Option<Self> {
        cases.sort_by_key(|(configuration, _)| {
            let Configuration { threads, prefetch, persistent, .. } = *configuration;
            (configuration.is_baseline(), threads, prefetch, !persistent, configuration.pageable())
        });
        // The fastest is chosen by the same rounds, so every pair counts. One more is whether the cores are enough.
        let level = level(shares * (pairs(cases.len()) + 1));
        let own = cases.iter().filter(|(configuration, _)| !configuration.is_baseline());
        let choice = Choice::of(&own.map(|(_, rates)| rates.as_slice()).collect::<Vec<_>>(), level)?;
        Some(Self { cases, choice, level })
    }

    fn fastest(&self) -> Configuration {
        self.cases[self.choice.fastest].0
    }

    /// The smallest configuration that is as good as the fastest; `None` if the rounds cannot tell.
    pub(super) fn smallest(&self) -> Option<Configuration> {
        self.choice.smallest.map(|case| self.cases[case].0)
    }

    /// The verdict on a configuration against the fastest; `None` for the fastest and the baseline.
    fn verdict(&self, configuration: Configuration) -> Option<Verdict> {
        let case = self.cases.iter().position(|case| case.0 == configuration)?;
        self.choice.verdicts.get(case).copied().flatten()
    }

    /// Case `b` against case `a`, in words.
    fn compared(&self, a: usize, b: usize) -> String {
        let rates: Vec<&[f64]> = self.cases.iter().map(|(_, rates)| rates.as_slice()).collect();
        in_turn(&rates, a, b, self.level).words("slower", "faster")
    }

    fn rate(&self, case: usize) -> String {
        let rate = Spread::of(&self.cases[case].1);
        rate.map_or_else(String::new, |Spread { median, low, high, .. }| {
            format!("{median:.0} images/s ({low:.0} to {high:.0})")
        })
    }

    /// The recommendation in sentences, or the reason why there is none.
    pub(super) fn answer(&self) -> Vec<String> {
        let fastest = self.choice.fastest;
        let name = |case: usize| self.cases[case].0.name();
        let measured = |case: usize| format!("{}, {}", name(case), self.rate(case));
        let options = |case: usize| self.cases[case].0.options();
        let mut answer = Vec::new();
        match (self.choice.smallest, self.choice.rounds_needed()) {
            (Some(smallest), _) if self.choice.verdicts.len() == 1 => {
                answer.push(format!("The only configuration: {}: {}", measured(smallest), options(smallest)));
            }
            (Some(smallest), _) if smallest == fastest => {
                answer.push(format!("Recommended: {}, the fastest measured: {}", measured(fastest), options(fastest)));
            }
            (Some(smallest), _) => {
                answer.push(format!("Recommended: {}: {}", measured(smallest), options(smallest)));
                let against = self.choice.verdicts[smallest].map(|verdict| verdict.words("slower", "faster"));
                answer.push(format!(
                    "It is the smallest that is as good as the fastest measured, {}: {}.",
                    measured(fastest),
                    against.unwrap_or_default()
                ));
            }
            (None, needed) => {
                let rounds = self.cases[fastest].1.len();
                answer.push(format!(
                    "Cannot tell which configuration to use: {rounds} {} measured, and {} or more could tell (--rounds).",
                    if rounds == 1 { "round was" } else { "rounds were" },
                    needed.unwrap_or_default()
                ));
                answer.push(format!("Fastest measured: {}: {}", measured(fastest), options(fastest)));
            }
        }
        if let Some(smallest) = self.choice.smallest.filter(|&smallest| smallest > 0) {
            let unclear: Vec<String> = self.choice.unclear().map(name).collect();
            answer.push(match &unclear[..] {
                [] => "Every smaller one is slower.".to_owned(),
                [one] => format!("Of the smaller ones, the rounds cannot tell whether this is slower: {one}."),
                many => format!(
                    "Of the {smallest} smaller ones, the rounds cannot tell whether these are slower: {}.",
                    many.join("; ")
                ),
            });
        }
        if let Some(baseline) = self.cases.iter().position(|(configuration, _)| configuration.is_baseline()) {
            let shown = self.choice.smallest.unwrap_or(fastest);
            answer.push(format!(
                "The baseline (no worker thread, one batch at a time, everything built anew each epoch) makes {}. Against it, \
                 {}: {}.",
                self.rate(baseline),
                name(shown),
                self.compared(baseline, shown)
            ));
        }
        let best_of = |pinned| {
            let is = |case: &usize| {
                let configuration = self.cases[*case].0;
                configuration.pinned == Some(pinned) && !configuration.is_baseline()
            };
            let median = |case: &usize| Spread::of(&self.cases[*case].1).map_or(0.0, |rate| rate.median);
            (0..self.cases.len()).filter(is).max_by(|a, b| median(a).total_cmp(&median(b)))
        };
        if let (Some(pinned), Some(pageable)) = (best_of(true), best_of(false)) {
            answer.push(format!(
                "Pinned memory: {} at best; pageable memory: {}: {}.",
                self.rate(pinned),
                self.rate(pageable),
                self.compared(pinned, pageable)
            ));
        }
        answer
    }
}

fn build(subject: &Subject, settings: &ConfigurationsSettings, configuration: Configuration) -> Result<Pipeline> {
    let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
    let builder =
        builder.threads(configuration.threads).prefetch(configuration.prefetch).entry_points(EntryPoints::none());
    let builder = configuration.pinned.into_iter().fold(builder, PipelineBuilder::pinned);
    settings.ops.iter().cloned().fold(builder, PipelineBuilder::transform).build()
}

/// The configurations that are measured.
struct Grid {
    configurations: Vec<Configuration>,
    /// Note about configurations that do not fit into memory.
    too_large: Option<String>,
    /// Name of the device that runs the operations.
    device: String,
}

fn grid(subject: &Subject, settings: &ConfigurationsSettings) -> Result<Grid> {
    let (mut grid, mut left_out, mut device) = (Vec::new(), 0, String::new());
    let free = available_memory_bytes().unwrap_or(u64::MAX);
    let pinned: Vec<Option<bool>> = match subject.device.resolve()? {
        Some(_) => settings.pinned.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    for &threads in &settings.threads {
        for &prefetch in &settings.prefetch {
            for &persistent in &settings.persistent {
                for &pinned in &pinned {
                    let configuration = Configuration { threads, prefetch, persistent, pinned };
                    let pipeline = build(subject, settings, configuration)?;
                    device = pipeline.device_name();
                    if pipeline.memory().batches_bytes > free / 10 * 8 {
                        left_out += 1;
                    } else {
                        grid.push(configuration);
                    }
                }
            }
        }
    }
    if settings.baseline {
        let pinned = pinned.first().copied().flatten().map(|_| false);
        grid.push(Configuration { threads: 0, prefetch: 1, persistent: false, pinned });
    }
    let note = format!("{left_out} configurations were left out: their batches take more memory than is free.");
    Ok(Grid { configurations: grid, too_large: (left_out > 0).then_some(note), device })
}

fn measure(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    configuration: Configuration,
    model: &mut Model,
    round: u32,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
) -> Result<Round> {
    let name = format!("{}, round {}", configuration.name(), round + 1);
    on_event(&Event::RunStart { run: name.clone(), settings: json!(configuration) })?;
    let mut run = TrainingRun::start(model.step.as_mut(), on_event);
    let begin = Instant::now();
    let mut build_s = 0.0;
    let mut timed_build = || {
        let start = Instant::now();
        let pipeline = build(subject, settings, configuration);
        build_s += start.elapsed().as_secs_f64();
        pipeline
    };
    let mut pipeline = timed_build()?;
    if configuration.persistent {
        run.for_time(&pipeline, settings.time)?;
    } else {
        for number in 0.. {
            run.epoch(&pipeline, number, Some(begin + settings.time))?;
            if begin.elapsed() >= settings.time || pipeline.is_empty() {
                break;
            }
            pipeline = timed_build()?;
        }
    }
    let run = run.finish();
    on_event(&Event::RunEnd { run: name, seconds: run.seconds })?;
    Ok(Round { build_s, run })
}

/// Ratio of a case's images per second to the baseline's.
fn times(case: &Case, baseline: &Case) -> f64 {
    case.images_per_s().median / baseline.images_per_s().median.max(f64::MIN_POSITIVE)
}

fn ranked(cases: &[Case], baseline: Option<&Case>, ranking: &Ranking) -> ReportTable {
    let mut table = ReportTable::new(
        "ranking",
        "Configurations, the fastest first",
        &[
            "threads",
            "prefetch",
            "persistent",
            "pinned",
            "images/s",
            "from",
            "to",
            "against the fastest",
            "times the baseline",
            "accelerator use, %",
            "set-up, s",
            "epochs",
            "wait p50, ms",
            "wait p95, ms",
            "wait p99, ms",
        ],
    );
    let mut few = false;
    for case in cases {
        let Configuration { threads, prefetch, persistent, pinned } = case.configuration;
        let yes_or_no = |value| Cell::from(if value { "yes" } else { "no" });
        let wait = percentiles(&case.waits());
        few |= wait.is_some_and(|wait| wait.p99.is_none());
        let ms = |of: fn(Percentiles) -> Option<f64>| Cell::number(wait.and_then(of).map(|seconds| 1e3 * seconds), 2);
        let Spread { median, low, high, .. } = case.images_per_s();
        table.rows.push(vec![
            Cell::number(threads as f64, 0),
            Cell::number(prefetch as f64, 0),
            yes_or_no(persistent),
            pinned.map_or(Cell::Blank, yes_or_no),
            Cell::number(median, 0),
            Cell::number(low, 0),
            Cell::number(high, 0),
            ranking.verdict(case.configuration).map_or(Cell::Blank, |verdict| verdict.words("slower", "faster").into()),
            Cell::number(baseline.map(|baseline| times(case, baseline)), 2),
            Cell::number(100.0 * case.accelerator_use(), 1),
            Cell::number(case.spread(Round::setup_s).median, 3),
            Cell::number(case.rounds.iter().map(|round| round.run.epochs.len()).sum::<usize>() as f64, 0),
            ms(|p| Some(p.p50)),
            ms(|p| p.p95),
            ms(|p| p.p99),
        ]);
    }
    table.blank.extend(few.then(|| format!("wait: {}", too_few("batches"))));
    if baseline.is_none() {
        table.blank.push("times the baseline: it was not measured (warpfeed bench configurations does).".to_owned());
    }
    table
}

/// Sentence that puts the published gain beside that of a configuration, with the reason. Rates are images per second;
/// `of_step`: `None` if the step takes no time.
fn beside_published(name: &str, rate: f64, of_baseline: f64, of_step: Option<f64>) -> String {
    let [author, first] = TIMES_THE_BASELINE.map(|(_, times)| times);
    let times = |rate: f64| rate / of_baseline.max(f64::MIN_POSITIVE);
    let why = match of_step {
        Some(of_step) => format!(
            "since the baseline makes {of_baseline:.0} images/s and the step takes {of_step:.0}, which bounds the gain at {:.2} times",
            times(of_step)
        ),
        None => format!("since the baseline makes {of_baseline:.0} images/s and no step bounds the gain"),
    };
    format!(
        "Published: {author:.0} times as fast as the baseline, and {first:.0} times where it was first run; here {:.2} times with \
         {name}, {why}.",
        times(rate)
    )
}

/// Speed relative to the baseline, measured and published, by the same measure.
struct Against {
    times: Vec<(String, f64)>,
    /// The step alone: no configuration can be faster.
    ceiling: Option<f64>,
}

impl Against {
    /// `of_step`: images per second that the step takes, if it takes time.
    fn of((smallest, best): (Option<&Case>, &Case), baseline: &Case, of_step: Option<f64>) -> Self {
        let own = [smallest.map(|case| ("recommended", case)), Some(("fastest measured", best))].into_iter().flatten();
        let own = own.map(|(name, case)| (format!("{name}: {}", case.configuration.name()), times(case, baseline)));
        let times = own.chain(TIMES_THE_BASELINE.map(|(name, times)| (name.to_owned(), times))).collect();
        let of_baseline = baseline.images_per_s().median.max(f64::MIN_POSITIVE);
        Self { times, ceiling: of_step.map(|of_step| of_step / of_baseline) }
    }

    fn table(&self) -> ReportTable {
        let title = "How many times as fast as the baseline: no worker, no prefetch, everything built anew";
        let epochs = format!("epochs in the time of {BASELINE_EPOCHS:.0} of the baseline");
        let columns = ["configuration", "times the baseline", &epochs];
        let mut table = ReportTable::new("times-the-baseline", title, &columns);
        let ceiling = self.ceiling.map(|times| ("ceiling: the step alone".to_owned(), times));
        for (name, times) in self.times.iter().cloned().chain(ceiling) {
            table.rows.push(vec![name.into(), Cell::number(times, 2), Cell::number(BASELINE_EPOCHS * times, 1)]);
        }
        if self.ceiling.is_none() {
            table.blank.push("the ceiling: the step takes no time (see --step).".to_owned());
        }
        table
    }
}

/// Table of the cores that are left to workers, as published and by the rule of [`worker_counts`].
fn worker_cores(here: Machine) -> ReportTable {
    let columns = ["machine", "cores", "GPUs", "published: cores for workers", "here: cores for workers"];
    let mut table = ReportTable::new("cores-for-workers", "Cores for workers, beside those of the trainers", &columns);
    let mut row = |name: &str, machine: Machine, published: Cell| {
        let [cores, gpus, own] = [machine.cores, machine.gpus, machine.for_images()].map(|n| Cell::number(n as f64, 0));
        table.rows.push(vec![name.into(), cores, gpus, published, own]);
    };
    for (cores, gpus, fewest, most) in WORKER_CORES {
        let published = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        row("published", Machine { cores, gpus }, published.into());
    }
    row("this one", here, Cell::Blank);
    table.blank.push("nothing was published of this machine.".to_owned());
    table
}

fn plots(
    report: &mut Report,
    cases: &[Case],
    own: (Option<&Case>, &Case),
    baseline: Option<&Case>,
    against: Option<Against>,
) {
    let chosen = own.0.unwrap_or(own.1);
    let shown = &cases[..cases.len().min(SHOWN)];
    let bar = |case: &Case| {
        let Spread { median, low, high, .. } = case.images_per_s();
        Bar {
            name: case.configuration.name().replace("built anew", "anew"),
            value: median,
            interval: Some((low, high)),
            marked: case.configuration == chosen.configuration,
        }
    };
    let shown: Vec<Bar> = shown.iter().map(bar).collect();
    let caption = format!("Images per second, the best {} of {}", shown.len(), cases.len());
    let title = format!("{caption}; the {} in blue", if own.0.is_some() { "recommended" } else { "fastest measured" });
    report.plot("ranking", caption, bars(&title, "images/s", &shown));
    if let Some(Against { times, ceiling }) = against {
        let bar = |(name, value): (String, f64)| Bar { name, value, interval: None, marked: false };
        let ceiling = ceiling.map(|value| Limit { name: "ceiling, the step alone".to_owned(), value });
        let caption = "Times as fast as the baseline; published in orange";
        let all: Vec<Bar> = times.into_iter().map(bar).collect();
        report.plot("times-the-baseline", caption, bars_with_limit(caption, "x", &all, ceiling.as_ref()));
    }
    // The chosen configuration and the baseline beside each other, over the same time.
    let first = |case: &Case| case.rounds.first().map_or_else(Vec::new, |round| round.run.stretches());
    let compared: Vec<&Case> = [Some(chosen), baseline].into_iter().flatten().collect();
    let until_s = compared.iter().flat_map(|case| first(case)).map(|stretch| stretch.end_s).fold(0.0, f64::max);
    for case in compared {
        let name = case.configuration.name();
        let file = if case.configuration.is_baseline() { "timeline-baseline" } else { "timeline" };
        let svg = timeline(&format!("Batches: {name}"), &LANES, &first(case), until_s);
        report.plot(file, format!("Set-up, fetch and train of each batch: {name}"), svg);
    }
    let (name, waits) = (chosen.configuration.name(), chosen.waits());
    if waits.len() >= FEWEST_WAITS {
        let svg = histogram(&format!("Waits: {name}"), &waits);
        report.plot("waits", format!("How long the trainer waited for each batch: {name}"), svg);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::verdict::simulated::{BUSY, Noise, QUIET, rates};
    use super::*;

    /// A ranking of 1 and 2 threads with prefetch 1, 2 and 4, and of a baseline, from made rounds. `of_one` and
    /// `of_none`: rates with one thread and with the baseline, where two threads make 1,000 images/s.
    pub(crate) fn made(
        report: u64,
        (of_one, of_none): (f64, f64),
        rounds: u32,
        noise: Noise,
        shares: usize,
    ) -> Ranking {
        let configuration =
            |threads, prefetch| Configuration { threads, prefetch, persistent: threads > 0, pinned: None };
        let own = [1, 2].into_iter().flat_map(|threads| [1, 2, 4].map(|prefetch| configuration(threads, prefetch)));
        let all: Vec<Configuration> = own.chain([configuration(0, 1)]).collect();
        let medians: Vec<f64> = all.iter().map(|c| [of_none, of_one, 1_000.0][c.threads]).collect();
        Ranking::of(all.into_iter().zip(rates(report, &medians, rounds, noise)).collect(), shares).unwrap()
    }

    /// Whether a sentence tells a difference, as [`Verdict::words`] does.
    pub(crate) fn tells(answer: &str) -> bool {
        ["slower (", "faster (", "shorter (", "longer (", "less (", "more ("]
            .iter()
            .any(|word| answer.contains(&format!("% {word}")))
    }

    #[test]
    fn equal_configurations_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        for noise in [QUIET, BUSY] {
            let rounds = rounds_for(7);
            let told = |report: &u64| {
                let ranking = made(*report, (1_000.0, 1_000.0), rounds, noise, 2);
                let verdicts = ranking.choice.verdicts.iter().flatten();
                tells(&ranking.answer().join("\n")) || verdicts.into_iter().any(Verdict::differs)
            };
            let told = (0..1_000).filter(told).count();
            assert!(told <= 10, "{told} of 1,000 reports");
        }
    }

    /// On a quiet machine, where figures vary by 2 % and rounds by another 2 %, and one figure in a hundred stalls.
    #[test]
    fn differences_of_5_percent_are_found() {
        let rounds = rounds_for(6);
        let (mut found, mut chosen) = (0, 0);
        for report in 0..300 {
            let ranking = made(report, (1_000.0 / 1.05, 500.0), rounds, QUIET, 2);
            found += ranking.choice.verdicts[..3].iter().filter(|verdict| verdict.is_some_and(|v| v.differs())).count();
            chosen += usize::from(ranking.smallest().is_some_and(|smallest| smallest.threads == 2));
            let against_the_baseline = ranking.answer().pop().unwrap();
            assert!(tells(&against_the_baseline), "{against_the_baseline}");
        }
        assert!(found >= 810 && chosen >= 255, "{found} of 900 differences found, {chosen} of 300 choices right");
    }

    #[test]
    fn published_gains_stand_beside_ours_with_what_bounds_them() {
        let said = beside_published("2 threads, prefetch 1", 410.0, 308.5, Some(444.0));
        let want = "Published: 35 times as fast as the baseline, and 15 times where it was first run; here 1.33 times with 2 \
                    threads, prefetch 1, since the baseline makes 308 images/s and the step takes 444, which bounds the gain at \
                    1.44 times.";
        assert_eq!(said, want);
        assert!(beside_published("x", 410.0, 308.5, None).ends_with("and no step bounds the gain."));
        let against = Against { times: vec![("published, the author's".to_owned(), 35.0)], ceiling: Some(1.44) };
        let text = against.table().text();
        assert!(text.contains("35.00") && text.contains("140.0") && text.contains("ceiling: the step alone"), "{text}");
        let rows: Vec<String> = (worker_cores(Machine { cores: 2, gpus: 0 }).rows.iter())
            .map(|row| row.iter().map(Cell::text).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows, ["published 20 1 18 18", "published 160 8 144 to 152 144", "this one 2 0  2"]);
    }

    #[test]
    fn few_rounds_recommend_nothing() {
        for rounds in [1, 3] {
            let ranking = made(0, (600.0, 300.0), rounds, QUIET, 1);
            let answer = ranking.answer();
            assert_eq!(ranking.smallest(), None);
            assert!(
                answer[0].starts_with("Cannot tell") && answer[0].contains(" and 8 or more could tell"),
                "{answer:?}"
            );
            assert!(answer[1].starts_with("Fastest measured: 2 threads"), "{answer:?}");
            assert!(answer[2].ends_with("cannot tell (8 rounds or more could)."), "{answer:?}");
        }
        let one = Configuration { threads: 1, prefetch: 1, persistent: true, pinned: None };
        let only = Ranking::of(vec![(one, vec![100.0])], 1).unwrap();
        assert_eq!(
            only.answer(),
            ["The only configuration: 1 thread, prefetch 1, 100 images/s (100 to 100): --threads 1 --prefetch 1"]
        );
    }
}
