//! The report of an audit: tables, plots and pictures.

use super::record::Inspector;
use super::tally::{Counts, quantiles};
use super::{Audit, Finding, Split, work};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::atomic::AtomicBool;
use warpfeed::Result;
use warpfeed::fields::LABELS;
use warpfeed::image::{JpegOptions, Size, encode_jpeg};
use warpfeed_bench::environment::Environment;
use warpfeed_bench::report::plot::{Axes, Bar, Picture, Series, pictures};
use warpfeed_bench::report::{Cell, Report, ReportTable};

/// Most examples of a finding in the table.
const EXAMPLES: usize = 20;
/// Most images of a finding whose pictures are shown; copies are shown next to their originals.
const PICTURES: usize = 12;
const PAIRS: usize = 8;
/// Most pairs in the report's figures.
const MAX_PAIRS: usize = 1_000;
/// Longer side of a picture, in pixels.
const PICTURE_PX: u32 = 200;
/// Most classes that a table lists, and that a plot shows.
const MAX_CLASSES: usize = 1_000;
const MAX_BARS: usize = 30;

const COPIES: [Finding; 4] = [Finding::Duplicate, Finding::NearDuplicate, Finding::OtherLabel, Finding::OtherSplit];

pub(super) fn report(audit: &Audit) -> Result<Report> {
    let mut report = Report::new("audit", "What should be known of these images before training?", Environment::here());
    let counts = FindingCounts::of(audit);
    report.settings = settings(audit);
    report.answer = answer(audit, &counts);
    report.tables = [counts.table(audit)]
        .into_iter()
        .chain(class_tables(audit))
        .chain(object_tables(audit))
        .chain([sizes(audit), kinds(audit), decoders(audit), examples(audit, &counts)])
        .filter(|table| !table.rows.is_empty())
        .collect();
    plots(audit, &counts, &mut report);
    show(audit, &counts, &mut report)?;
    report.notes = notes(audit, &counts);
    report.figures = figures(audit, &counts);
    Ok(report)
}

/// For each finding, the number of images in each split, and its first images.
struct FindingCounts {
    counts: Vec<Vec<u64>>,
    first: Vec<Vec<u32>>,
    /// Number of images with any finding.
    images: u64,
}

impl FindingCounts {
    fn of(audit: &Audit) -> Self {
        let mut counts = vec![vec![0; audit.splits.len()]; Finding::ALL.len()];
        let (mut first, mut images) = (vec![Vec::new(); Finding::ALL.len()], 0);
        for (image, row) in (0..).zip(&audit.rows) {
            let split = audit.at(image).0;
            let mut any = 0;
            for finding in Finding::of(row.found) {
                counts[finding as usize][split] += 1;
                if first[finding as usize].len() < EXAMPLES {
                    first[finding as usize].push(image);
                }
                any = 1;
            }
            images += any;
        }
        Self { counts, first, images }
    }

    fn count(&self, finding: Finding) -> u64 {
        self.counts[finding as usize].iter().sum()
    }

    fn there(&self) -> impl Iterator<Item = Finding> {
        Finding::ALL.iter().copied().filter(|finding| self.count(*finding) > 0)
    }

    fn table(&self, audit: &Audit) -> ReportTable {
        let names = audit.splits.iter().map(|split| split.name.as_str());
        let columns: Vec<&str> =
            ["finding", "such an image"].into_iter().chain(names).chain(["share, %", "first"]).collect();
        let mut table = ReportTable::new("findings", "Findings, in images", &columns);
        for finding in self.there() {
            let mut row: Vec<Cell> = vec![finding.name().into(), finding.meaning().into()];
            row.extend(self.counts[finding as usize].iter().map(|&count| Cell::number(count as f64, 0)));
            row.push(Cell::number(100.0 * self.count(finding) as f64 / audit.rows.len() as f64, 2));
            row.push(short_name(audit, self.first[finding as usize][0]).into());
            table.rows.push(row);
        }
        table
    }
}

/// The last two parts of an image's name.
fn short_name(audit: &Audit, image: u32) -> String {
    let (source, index) = audit.sample(image);
    let name = source.name(index);
    let start = name.rmatch_indices(['/', '\\']).nth(1).map_or(0, |(at, _)| at + 1);
    name[start..].to_owned()
}

fn settings(audit: &Audit) -> Value {
    let options = &audit.options;
    let split = |split: &Split| format!("{}: {} images", split.name, split.images.len());
    json!({
        "splits": audit.splits.iter().map(split).collect::<Vec<_>>(),
        "tiny": format!("a side below {} px", options.tiny_px),
        "huge": format!("over {} Mpx", options.huge_px as f64 / 1e6),
        "ratio": format!("sides over 1 to {}", options.max_ratio),
        "dropped": options.drop.iter().map(|finding| finding.name()).collect::<Vec<_>>(),
    })
}

fn answer(audit: &Audit, counts: &FindingCounts) -> Vec<String> {
    let images = audit.rows.len();
    let mut answer = vec![match counts.images {
        0 => format!("Nothing was found about {images} images."),
        found => format!("Something was found about {found} of {images} images."),
    }];
    let bad = counts.count(Finding::Unreadable) + counts.count(Finding::Truncated);
    if bad > 0 {
        answer.push(format!("{bad} cannot be used: pipelines refuse them, or skip them with --on-error skip."));
    }
    if counts.count(Finding::Annotations) > 0 {
        let wrong = counts.count(Finding::Annotations);
        answer.push(format!(
            "{wrong} have annotations that cannot be used: a pipeline that reads them refuses the images."
        ));
    }
    for Split { name, images } in &audit.splits {
        answer.extend(images.warnings().into_iter().map(|warning| format!("{name}: {warning}.")));
    }
    let copies = counts.count(Finding::Duplicate) + counts.count(Finding::NearDuplicate);
    if copies > 0 {
        answer.push(format!("{copies} are copies of images in the same split."));
    }
    if counts.count(Finding::OtherSplit) > 0 {
        let first = counts.counts[Finding::OtherSplit as usize][0];
        let name = &audit.splits[0].name;
        answer.push(format!("{first} images of {name} are also in another split, whose results then are too good."));
    }
    if counts.count(Finding::OtherLabel) > 0 {
        answer.push(format!("{} have a copy with another label.", counts.count(Finding::OtherLabel)));
    }
    answer.extend(audit.splits[1..].iter().filter_map(|split| other_classes(&audit.splits[0], split)));
    if let Some(path) = &audit.options.kept {
        let (kept, all) = (audit.kept(&audit.options.drop).count(), audit.splits[0].images.len());
        answer.push(format!("{kept} of {all} images of {} are kept: {}", audit.splits[0].name, path.display()));
    }
    answer
}

/// The difference between the classes of two splits, if there is one: labels of equal classes then are other numbers.
fn other_classes(first: &Split, split: &Split) -> Option<String> {
    let (ours, theirs) = (first.images.classes(), split.images.classes());
    let (labels, other) = (first.images.has_labels(), split.images.has_labels());
    if labels != other {
        let (with, without) = if labels { (first, split) } else { (split, first) };
        return Some(format!("{} has labels, and {} has none.", with.name, without.name));
    }
    if ours == theirs || !labels {
        return None;
    }
    let missing =
        |own: &[String], of: &[String]| own.iter().filter(|class| !of.contains(class)).cloned().collect::<Vec<_>>();
    let shown = |name: &str, classes: Vec<String>| match &classes[..] {
        [] => String::new(),
        [some @ .., last] if classes.len() <= 5 => {
            let some: String = some.iter().map(|class| format!("{class}, ")).collect();
            format!("; only {name} has {some}{last}")
        }
        [first, ..] => format!("; only {name} has {first} and {} more", classes.len() - 1),
    };
    let moved = ours
        .iter()
        .enumerate()
        .filter(|(label, class)| theirs.iter().position(|own| own == *class).is_some_and(|own| own != *label));
    Some(format!(
        "{} and {} have different classes{}{}; {} classes of both have other labels.",
        first.name,
        split.name,
        shown(&first.name, missing(ours, theirs)),
        shown(&split.name, missing(theirs, ours)),
        moved.count(),
    ))
}

/// Numbers of images by class, for each split.
fn class_tables(audit: &Audit) -> Vec<ReportTable> {
    let columns = ["split", "images", "classes", "empty", "smallest", "median", "largest"];
    let mut summary = ReportTable::new("classes", "Classes, in images", &columns);
    let mut list = ReportTable::new(
        "class-counts",
        "Images of each class, of splits with up to 1,000 classes",
        &["split", "class", "images"],
    );
    list.in_files_only = true;
    for split in audit.splits.iter().filter(|split| split.images.has_labels()) {
        let by_label = label_counts(split);
        let named = split.images.classes().len();
        let empty = (0..named as u32).filter(|label| !by_label.contains_key(label)).count();
        let mut sorted: Vec<u64> = by_label.values().copied().collect();
        sorted.sort_unstable();
        let at = |place: usize| Cell::number(sorted.get(place).map(|&count| count as f64), 0);
        let number = |count: usize| Cell::number(count as f64, 0);
        summary.rows.push(vec![
            split.name.clone().into(),
            Cell::number(split.images.len() as f64, 0),
            number(named.max(by_label.len())),
            number(empty),
            at(0),
            at(sorted.len() / 2),
            at(sorted.len().wrapping_sub(1)),
        ]);
        if by_label.len() <= MAX_CLASSES {
            let row = |(label, count): (&u32, &u64)| {
                vec![split.name.clone().into(), class_name(split, *label).into(), Cell::number(*count as f64, 0)]
            };
            list.rows.extend(by_label.iter().map(row));
        }
    }
    vec![summary, list]
}

/// Numbers of objects by class, for each split whose objects have labels.
fn object_tables(audit: &Audit) -> Vec<ReportTable> {
    let columns = ["split", "objects", "classes", "empty", "smallest", "median", "largest"];
    let mut summary = ReportTable::new("object-classes", "Classes of objects, in objects", &columns);
    let columns = ["split", "class", "objects", "images"];
    let mut list =
        ReportTable::new("object-counts", "Objects of each class, of splits with up to 1,000 classes", &columns);
    list.in_files_only = true;
    let number = |count: usize| Cell::number(count as f64, 0);
    for (i, split) in audit.splits.iter().enumerate() {
        let by_label: Vec<(i64, [u64; 2])> = audit
            .tally
            .objects
            .range((i, i64::MIN)..=(i, i64::MAX))
            .map(|((_, label), counts)| (*label, *counts))
            .collect();
        if !audit.fields[i].iter().any(|field| field == LABELS) {
            continue;
        }
        let named = split.images.classes().len();
        let empty =
            (0..named as i64).filter(|class| by_label.binary_search_by_key(class, |(label, _)| *label).is_err());
        let mut sorted: Vec<u64> = by_label.iter().map(|(_, [objects, _])| *objects).collect();
        sorted.sort_unstable();
        let at = |place: usize| Cell::number(sorted.get(place).map(|&count| count as f64), 0);
        summary.rows.push(vec![
            split.name.clone().into(),
            Cell::number(sorted.iter().sum::<u64>() as f64, 0),
            number(named.max(by_label.len())),
            number(empty.count()),
            at(0),
            at(sorted.len() / 2),
            at(sorted.len().wrapping_sub(1)),
        ]);
        if by_label.len() <= MAX_CLASSES {
            list.rows.extend(by_label.into_iter().map(|(label, [objects, images])| {
                let class = usize::try_from(label).ok().and_then(|label| split.images.classes().get(label));
                let class = class.cloned().unwrap_or_else(|| label.to_string());
                let counts = [objects, images].map(|count| Cell::number(count as f64, 0));
                [split.name.clone().into(), class.into()].into_iter().chain(counts).collect()
            }));
        }
    }
    vec![summary, list]
}

fn label_counts(split: &Split) -> Counts<u32> {
    let mut counts = Counts::new();
    let labels = (0..split.images.len()).filter_map(|index| split.images.label(index));
    labels.for_each(|label| *counts.entry(label).or_default() += 1);
    counts
}

fn class_name(split: &Split, label: u32) -> String {
    split.images.classes().get(label as usize).cloned().unwrap_or_else(|| label.to_string())
}

fn sizes(audit: &Audit) -> ReportTable {
    let columns = ["quantity", "least", "1 %", "25 %", "median", "75 %", "99 %", "most"];
    let mut table = ReportTable::new("sizes", "Sizes: the value that a share of the images does not exceed", &columns);
    let tally = &audit.tally;
    for (name, counts, unit, decimals) in [
        ("longer side, px", &tally.long_px, 1.0, 0),
        ("shorter side, px", &tally.short_px, 1.0, 0),
        ("pixels, Mpx", &tally.kpx, 1e3, 3),
        ("file, kB", &tally.kb, 1.0, 0),
    ] {
        if let Some(values) = quantiles(counts, [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0]) {
            let cells = values.map(|value| Cell::number(f64::from(value) / unit, decimals));
            table.rows.push([Cell::from(name)].into_iter().chain(cells).collect());
        }
    }
    table
}

fn kinds(audit: &Audit) -> ReportTable {
    let columns = ["format", "coding", "sampling", "images", "share, %"];
    let mut table = ReportTable::new("formats", "Formats", &columns);
    let text = |text: &String| if text.is_empty() { Cell::Blank } else { text.as_str().into() };
    let mut kinds: Vec<_> = audit.tally.kinds.iter().collect();
    kinds.sort_by_key(|(_, count)| Reverse(**count));
    for ((format, coding, sampling), count) in kinds {
        let share = 100.0 * *count as f64 / audit.rows.len() as f64;
        let numbers = [Cell::number(*count as f64, 0), Cell::number(share, 2)];
        table.rows.push([text(format), text(coding), text(sampling)].into_iter().chain(numbers).collect());
    }
    table
}

fn decoders(audit: &Audit) -> ReportTable {
    let columns = ["--jpeg-decoder", "decoder", "images", "share, %"];
    let mut table =
        ReportTable::new("decoders", "The decoder on a GPU that would take each image, by its header", &columns);
    let mut row = |path: &str, decoder: &str, count: u64| {
        let share = 100.0 * count as f64 / audit.rows.len() as f64;
        table.rows.push(vec![path.into(), decoder.into(), Cell::number(count as f64, 0), Cell::number(share, 2)]);
    };
    let of_cpu = audit.tally.decoders.values().sum::<u64>() - audit.tally.device;
    row("auto, device", "our kernels", audit.tally.device);
    row("auto, device", "the CPU", of_cpu);
    for (name, decoder) in
        [("hardware", "nvJPEG's hardware decoder"), ("hybrid", "nvJPEG's hybrid decoder"), ("cpu", "the CPU")]
    {
        row("hardware", decoder, audit.tally.decoders.get(name).copied().unwrap_or(0));
    }
    table
}

/// The first images of each finding, with what tells it.
fn examples(audit: &Audit, counts: &FindingCounts) -> ReportTable {
    let columns = ["finding", "split", "index", "image", "detail"];
    let mut table = ReportTable::new("examples", format!("The first {EXAMPLES} images of each finding"), &columns);
    table.in_files_only = true;
    for finding in counts.there() {
        for &image in &counts.first[finding as usize] {
            let described = audit.found(image);
            table.rows.push(vec![
                finding.name().into(),
                described.split.into(),
                Cell::number(described.index as f64, 0),
                described.name.into_owned().into(),
                detail(audit, finding, image).map_or(Cell::Blank, Cell::Text),
            ]);
        }
    }
    table
}

fn detail(audit: &Audit, finding: Finding, image: u32) -> Option<String> {
    let row = &audit.rows[image as usize];
    let mpx = f64::from(row.px) / 1e6;
    match finding {
        Finding::Unreadable | Finding::Truncated => audit.tally.errors.get(&image).cloned(),
        Finding::Annotations => audit.tally.annotations.get(&image).cloned(),
        Finding::Extension => Some(format!("content: {}", audit.tally.contents.get(&image)?)),
        Finding::Slow => Some(format!("{:.0} ms for {mpx:.3} Mpx", row.decode_us / 1e3)),
        Finding::Huge => Some(format!("{mpx:.1} Mpx")),
        _ if COPIES.contains(&finding) => {
            let of = audit.found(audit.original(image)?);
            let class = of.class.map_or_else(String::new, |class| format!(", class {class}"));
            Some(format!("copy of {} in {}{class}", of.name, of.split))
        }
        _ => None,
    }
}

fn plots(audit: &Audit, counts: &FindingCounts, report: &mut Report) {
    let bar = |name: String, count: u64, all: usize| {
        let value = 100.0 * count as f64 / all.max(1) as f64;
        Bar { name, value, interval: None, marked: false }
    };
    let images = audit.rows.len();
    let found: Vec<Bar> =
        counts.there().map(|finding| bar(finding.name().to_owned(), counts.count(finding), images)).collect();
    report.leading_plots = usize::from(!found.is_empty());
    if !found.is_empty() {
        report.plot("findings", "Findings", Axes::new("Findings, share of all images", "%").bars(&found));
    }
    if !audit.tally.qualities.is_empty() {
        let group = |ten: u32| format!("{}-{}", (10 * ten).max(1), if ten == 9 { 100 } else { 10 * ten + 9 });
        let groups: Vec<String> = (0..10).map(group).collect();
        let mut tens = vec![0.0; 10];
        for (quality, count) in &audit.tally.qualities {
            tens[usize::from(quality / 10).min(9)] += 100.0 * *count as f64 / images as f64;
        }
        let series = [Series::new("images", tens.into_iter().map(Some).collect())];
        let title = "JPEG quality, estimated: share of all images, %";
        report.plot("qualities", title, Axes::new(title, "").of("quality").grouped_bars(&groups, &series));
    }
    let first = &audit.splits[0];
    let by_label = label_counts(first);
    if (2..=MAX_BARS).contains(&by_label.len()) {
        let classes: Vec<Bar> = by_label
            .iter()
            .map(|(label, count)| bar(class_name(first, *label), *count, first.images.len() as usize))
            .collect();
        let title = format!("Classes of {}: share of its images", first.name);
        report.plot("classes", title.clone(), Axes::new(&title, "%").bars(&classes));
    }
}

/// Adds pictures of what was found.
fn show(audit: &Audit, counts: &FindingCounts, report: &mut Report) -> Result<()> {
    for finding in counts.there() {
        let is_pair = COPIES.contains(&finding);
        let shown: Vec<u32> = if is_pair {
            pairs(audit, finding).take(PAIRS).flat_map(|(copy, of)| [of, copy]).collect()
        } else {
            counts.first[finding as usize].iter().copied().take(PICTURES).collect()
        };
        if shown.is_empty() {
            continue;
        }
        let mut made: Vec<Option<Picture>> = vec![None; shown.len()];
        let make = |at: usize, inspector: &mut Inspector, _: &AtomicBool| {
            let (source, index) = audit.sample(shown[at]);
            let image = inspector.thumbnail(source, index, PICTURE_PX);
            let size = image.as_ref().map_or(Size::new(4, 3), |image| image.size());
            let jpeg = image.map(|image| encode_jpeg(&image, &JpegOptions { quality: 80, ..JpegOptions::default() }));
            let mut caption = vec![short_name(audit, shown[at])];
            if is_pair && audit.splits.len() > 1 {
                caption.push(format!("in {}", audit.splits[audit.at(shown[at]).0].name));
            }
            if finding == Finding::OtherLabel {
                caption.push(format!("class {}", audit.class(shown[at])));
            }
            Ok(Picture { jpeg: jpeg.transpose()?.unwrap_or_default(), size, caption })
        };
        work(audit.options.threads, shown.len(), make, &mut |at, picture: Picture| {
            made[at] = Some(picture);
            Ok(())
        })?;
        let made: Vec<Picture> = made.into_iter().flatten().collect();
        let all = counts.count(finding);
        let title = format!("{}: {}, {all} in all", finding.name(), finding.meaning());
        let columns = if is_pair { 2 } else { 3 };
        report.plot(format!("found-{}", finding.name()), title.clone(), pictures(&title, columns, &made));
    }
    Ok(())
}

/// Copies that show a finding, each with what it is a copy of.
fn pairs(audit: &Audit, finding: Finding) -> impl Iterator<Item = (u32, u32)> {
    audit.copies.iter().copied().filter(move |&(copy, of)| match finding {
        Finding::OtherSplit => audit.at(copy).0 != audit.at(of).0,
        Finding::OtherLabel => audit.rows[copy as usize].has(finding) && audit.class(copy) != audit.class(of),
        finding => audit.rows[copy as usize].has(finding) && audit.at(copy).0 == audit.at(of).0,
    })
}

fn notes(audit: &Audit, counts: &FindingCounts) -> Vec<String> {
    let missing: Vec<&str> =
        Finding::ALL.iter().filter(|finding| counts.count(**finding) == 0).map(|finding| finding.name()).collect();
    let mut notes = Vec::new();
    if !missing.is_empty() {
        notes.push(format!("Not found: {}.", missing.join(", ")));
    }
    if counts.count(Finding::Slow) > 0 {
        notes.push(
            "An image is slow if the fastest of three decodes took over 20 ms and over 5 times the median time a pixel of \
             its format. JPEGs are decoded at a small scale for this. On a busy machine this is no verdict."
                .to_owned(),
        );
    }
    if audit.is_cut {
        notes.push(
            "Some images look like very many others. Only eight earlier ones of each were compared, so copies among them \
             may be missing."
                .to_owned(),
        );
    }
    notes.push(
        "Copies that are cropped, mirrored, turned or recolored are not looked for. JPEG qualities are estimated from the \
         first quantization table."
            .to_owned(),
    );
    notes
}

fn figures(audit: &Audit, counts: &FindingCounts) -> Value {
    let findings: serde_json::Map<String, Value> = Finding::ALL
        .iter()
        .map(|finding| (finding.name().to_owned(), json!(counts.counts[*finding as usize])))
        .collect();
    let pair = |&(copy, of): &(u32, u32)| json!({ "copy": audit.found(copy), "of": audit.found(of) });
    json!({
        "splits": audit.splits.iter().map(|split| &split.name).collect::<Vec<_>>(),
        "images": audit.splits.iter().map(|split| split.images.len()).collect::<Vec<_>>(),
        "images_with_findings": counts.images,
        "warnings": audit.splits.iter().map(|split| split.images.warnings()).collect::<Vec<_>>(),
        "findings": findings,
        "copies": audit.copies.iter().take(MAX_PAIRS).map(pair).collect::<Vec<_>>(),
        "qualities": audit.tally.qualities,
        "kept": audit.options.kept.as_ref().map(|_| audit.kept(&audit.options.drop).count()),
    })
}
