//! The report of `warpfeed run` as text.

use super::output::{bytes, escape};
use warpfeed::BadSample;
use warpfeed::fields::DroppedObjects;
use warpfeed_bench::run::RunReport;
use warpfeed_bench::run_group::GroupReport;

/// A line's name and its text, if there is something to say.
type Line = (&'static str, Option<String>);

/// The report as text.
pub fn text(report: &RunReport) -> String {
    let RunReport { images, batches, seconds, images_per_s, threads, prefetch, device, .. } = report;
    let strategy = format!("{:?}", report.strategy).to_lowercase();
    let head = format!(
        "{images} images in {batches} batches, {seconds:.3} s: {images_per_s:.1} images/s ({threads} threads, prefetch \
         {prefetch}, {device}, {strategy})\n"
    );
    let lines = source(report).into_iter().chain(time(report)).chain(decoding(report)).chain(rest(report));
    let lines: String = lines.filter_map(|(name, text)| text.map(|text| format!("{name:14}{}\n", text))).collect();
    let bad = if report.bad_count == 0 { "none".to_owned() } else { format!("{} images:", report.bad_count) };
    format!("{head}{lines}not usable    {bad}\n{}", bad_lines(&report.bad, ""))
}

/// What was delivered, and what it was continued from.
fn source(report: &RunReport) -> [Line; 7] {
    let padded =
        format!("{} of {} images were smaller than a crop, so its fill shows", report.smaller_than_crop, report.images);
    let epochs =
        |first: f64, last: f64| format!("{}: {first:.1} images/s in the first, {last:.1} in the last", report.epochs);
    let epochs = match &report.each_epoch[..] {
        [first, .., last] => Some(epochs(first.images_per_s, last.images_per_s)),
        _ => None,
    };
    [
        ("source", Some(escape(&report.source))),
        ("cut to RGB", cut(report)),
        ("padded", (report.smaller_than_crop > 0).then_some(padded)),
        ("objects", report.objects.zip(report.dropped_objects).map(objects_text)),
        ("epochs", epochs),
        (
            "continued",
            report.other_ranks.map(|before| {
                format!("after {} images in {} batches of {} ranks", before.images, before.batches, before.ranks)
            }),
        ),
        (
            "resumed",
            report.earlier.map(|earlier| format!("after {} images in {} batches", earlier.images, earlier.batches)),
        ),
    ]
}

/// What decoding to RGB of 8 bits has dropped.
fn cut(report: &RunReport) -> Option<String> {
    let bits = format!("{} images had more than 8 bits a sample: the low bits are dropped", report.sixteen_bits);
    let alpha = format!("{} images had an alpha channel, which is dropped", report.alpha);
    let cut = [(report.sixteen_bits, bits), (report.alpha, alpha)];
    let cut: Vec<_> = cut.into_iter().filter(|(images, _)| *images > 0).map(|(_, text)| text).collect();
    (!cut.is_empty()).then(|| cut.join("; "))
}

/// Where the time went.
fn time(report: &RunReport) -> [Line; 2] {
    let stages = &report.stages;
    let mix = if stages.mix > 0.0 { format!("mix {:.3} s, ", stages.mix) } else { String::new() };
    let threads = format!(
        "read {:.3} s, decode {:.3} s, augment {:.3} s, {mix}waiting {:.3} s",
        stages.read, stages.decode, stages.augment, stages.worker_wait
    );
    [
        ("first batch", report.first_batch_s.map(|first| format!("{first:.3} s after start"))),
        ("threads' time", Some(threads)),
    ]
}

/// What was read, and which decoders decoded it.
fn decoding(report: &RunReport) -> [Line; 9] {
    let (decoded, images) = (report.decoded, report.images);
    let left: Vec<_> = decoded.cpu_fallbacks.iter().map(|(reason, images)| format!("{images} {reason}")).collect();
    let restarts = format!("{} of {images} images were decoded around the crop only", decoded.restarts);
    let points = decoded.entry_points + decoded.device_entry_points;
    let folder = report.entry_points_folder.as_ref();
    let folder = folder.map(|folder| format!(", kept in {}", escape(folder.display()))).unwrap_or_default();
    let from_points = format!("{points} of {images} images were decoded from places found earlier{folder}");
    let kept = format!("{} of {images} images were in GPU memory", decoded.device_cached);
    let direct = format!("{} of {images} images were read by the GPU", decoded.device_direct);
    let cache = report.cache.as_ref().map(|cache| {
        let full = if cache.full { ", and no room for more" } else { "" };
        let (used, limit) = (bytes(cache.bytes), bytes(cache.limit_bytes));
        let failed = cache.failed.as_ref();
        let failed = failed.map(|failed| format!("\n{:14}caching ended: {failed}", "")).unwrap_or_default();
        let cached = report.cached;
        format!(
            "{cached} of {images} images came from it; it has {} images, {used} of {limit}{full}{failed}",
            cache.images
        )
    });
    [
        ("read", Some(bytes(report.read_bytes))),
        ("decoded by", Some(decoders(report))),
        ("left to CPU", (decoded.cpu_fallbacks.total() > 0).then(|| left.join(", "))),
        ("consumer", Some(format!("waited {:.3} s for batches", report.stages.consumer_wait))),
        ("restarts", (decoded.restarts > 0).then_some(restarts)),
        ("entry points", (points > 0).then_some(from_points)),
        ("device cache", (decoded.device_cached > 0).then_some(kept)),
        ("GPUDirect", (decoded.device_direct > 0).then_some(direct)),
        ("image cache", cache),
    ]
}

fn rest(report: &RunReport) -> [Line; 5] {
    let moved = report.displacement_mean.zip(report.displacement_max);
    let targets = report.targets.map(|targets| {
        let (of, numbers, size) = (targets.images, targets.numbers, bytes(targets.bytes));
        format!("{of} for {} images: {numbers} numbers, {size}", report.images)
    });
    [
        ("shuffling", moved.map(|(mean, most)| format!("moved images by {mean:.1} places on average, {most} at most"))),
        ("targets", targets),
        ("peak memory", report.peak_rss_bytes.map(bytes)),
        ("digest", report.digest.clone()),
        ("log's chain", report.log_chain.clone()),
    ]
}

/// The number of images by decoder. On the CPU there is only one decoder.
fn decoders(report: &RunReport) -> String {
    let decoded = report.decoded;
    let cpu = format!("the CPU {}", decoded.cpu);
    if report.device == "cpu" {
        return cpu;
    }
    format!(
        "{cpu}, warpfeed's kernels {}, nvJPEG's hybrid decoder {}, the hardware decoder {}",
        decoded.device, decoded.hybrid, decoded.hardware
    )
}

/// Number of objects delivered, and of those that operations dropped, by rule.
fn objects_text((objects, dropped): (u64, DroppedObjects)) -> String {
    let rules: Vec<_> = dropped.iter().map(|(rule, objects)| format!("{objects} by {rule}")).collect();
    let rules = if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
    format!("{objects} delivered, {} dropped by operations{rules}", dropped.total())
}

fn bad_lines(bad: &[BadSample], of: &str) -> String {
    bad.iter().map(|bad| format!("  {of}{}: {}\n", escape(&bad.path), escape(&bad.error))).collect()
}

/// The report on several devices, as text.
pub fn group_text(report: &GroupReport) -> String {
    let GroupReport { images, seconds, images_per_s, threads, devices, .. } = report;
    let mut text = format!(
        "{images} images to {} devices, {seconds:.3} s: {images_per_s:.1} images/s ({threads} threads)\n",
        devices.len()
    );
    for device in devices {
        let digest = device.digest.as_ref().map_or_else(String::new, |digest| format!(", digest {digest}"));
        text += &format!("{}: {} images in {} batches{digest}\n", device.device, device.images, device.batches);
        let objects = device.objects.zip(device.dropped_objects).map(objects_text);
        text += &objects.map(|objects| format!("  objects: {objects}\n")).unwrap_or_default();
        text += &bad_lines(&device.bad, "not usable: ");
    }
    text
}
