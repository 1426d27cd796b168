//! The settings that decide about a run's output, as text.

use super::options::PipelineOptions;
use clap::ArgMatches;
use clap::parser::ValueSource;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::path::Path;
use warpfeed::source::read_text_limited;
use warpfeed::{JpegDecoder, Result, Setting, SettingEffect};

/// Largest file of class names, in bytes.
const MAX_CLASSES_BYTES: u64 = 1 << 26;

/// Options of the command that decide about nothing that a run delivers: places of caches, and reports. Of settings of
/// a pipeline, [`Setting`] says it.
const NEUTRAL: &[&str] = &[
    "chain",
    "devices",
    "digest",
    "digests",
    "entry_points",
    "epochs",
    "image_cache",
    "image_cache_dir",
    "json",
    "log",
    "pageable",
    "shard_cache",
    "shard_cache_size",
    "state",
];

/// Options that a state knows by itself ([`EpochState`](warpfeed::EpochState)): the source, which may move, and the
/// order.
const IN_STATE: &[&str] = &["annotations", "list", "no_shuffle", "random_access", "rank", "spec", "window"];

/// The options of `warpfeed run` that decide about the output, but those that a state holds. Options with their default
/// values are left out, so that a state stays valid when the command gets another option.
pub fn settings(command: &clap::Command, given: &ArgMatches, options: &PipelineOptions) -> Result<String> {
    let mut settings = vec![options.preset.settings()?];
    // All others make the same bytes on every device.
    let decoder = options.settings.get("jpeg_decoder")?;
    let by_hardware = matches!(decoder, JpegDecoder::Hardware | JpegDecoder::HardwareDevice);
    let by_nvjpeg = by_hardware || decoder == JpegDecoder::Hybrid;
    for option in command.get_arguments() {
        let id = option.get_id().as_str();
        let decides = match id {
            "preset" | "load" | "transforms" => false,
            "device" => by_nvjpeg,
            "hardware_share" => by_hardware,
            "batch_size" => options.is_batch_size_seen()?,
            _ => match Setting::named(id).map(|setting| setting.effect) {
                Some(SettingEffect::BatchesIf(values)) => {
                    options.settings.text(id).is_some_and(|text| values.contains(&text))
                }
                Some(effect) => effect == SettingEffect::Batches,
                None => !NEUTRAL.contains(&id) && !IN_STATE.contains(&id),
            },
        };
        let Ok(Some(values)) = given.try_get_raw(id) else { continue };
        let values: Vec<&OsStr> = values.collect();
        let is_default = given.value_source(id) != Some(ValueSource::CommandLine)
            || option.get_default_values().iter().map(|value| &**value).eq(values.iter().copied());
        // The batch size decides with its default value too.
        if !decides || is_default && !matches!(id, "batch_size" | "device") {
            continue;
        }
        let name = option.get_long().unwrap_or(id);
        let mut text: Vec<String> = values.iter().map(|value| value.to_string_lossy().into_owned()).collect();
        if id == "classes" {
            text = text.iter().map(|path| digest_of(Path::new(path))).collect::<Result<_>>()?;
        }
        let is_flag = !option.get_action().takes_values();
        settings.push(if is_flag { name.to_owned() } else { format!("{name} {}", text.join(",")) });
    }
    Ok(settings.join(", "))
}

/// The beginning of the SHA-256 of a file's text.
fn digest_of(path: &Path) -> Result<String> {
    let text = read_text_limited(path, MAX_CLASSES_BYTES)?;
    Ok(warpfeed::internal::hex::hex(&Sha256::digest(text)[..8]))
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};

    /// The settings of a run with a source and these options.
    fn of(command: clap::Command, options: &[&str]) -> String {
        let words = ["run", "folder"].iter().chain(options);
        let given = command.clone().try_get_matches_from(words).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let options = PipelineOptions::from_arg_matches(&given).unwrap();
        settings(&command, &given, &options).unwrap()
    }

    fn run() -> clap::Command {
        Cli::command().find_subcommand("run").unwrap().clone()
    }

    #[test]
    fn every_option_decides_unless_it_is_listed() {
        let classes = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(classes.path(), "cat\ndog\n").unwrap();
        let classes = classes.path().to_str().unwrap();
        // Options whose values are not any word, with two that they take.
        let values: &[(&str, &[&str])] = &[
            ("batch_size", &["--batch-size", "7", "--last-batch", "drop"]),
            ("box_format", &["--box-format", "XYWH"]),
            ("buckets", &["--buckets", "sdxl"]),
            ("classes", &["--classes", classes]),
            ("jpeg_decoder", &["--jpeg-decoder", "hybrid"]),
            ("device", &["--device", "cuda", "--jpeg-decoder", "hardware"]),
            ("draft", &["--draft", "100"]),
            ("hardware_share", &["--hardware-share", "0.5", "--jpeg-decoder", "hardware"]),
            ("dtype", &["--dtype", "u8"]),
            ("flip_index", &["--flip-index", "1,0"]),
            ("format", &["--format", "list"]),
            ("aux", &["--aux", "depth=folder"]),
            ("lanes", &["--lanes", "2"]),
            ("last_batch", &["--last-batch", "pad"]),
            ("layout", &["--layout", "nhwc"]),
            ("load", &["--load", "3"]),
            ("mask_ids", &["--mask-ids", "reduce-zero"]),
            ("mask_ignored", &["--mask-ignored", "7"]),
            ("mix", &["--mix", "timm=0.8/1"]),
            ("on_error", &["--on-error", "skip"]),
            ("orientation", &["--orientation", "ignore"]),
            ("preset", &["--preset", "eval"]),
            ("max_pixels", &["--max-pixels", "1000"]),
            ("max_value", &["--max-value", "4095"]),
            ("channels", &["--channels", "1"]),
            ("pass_order", &["--pass-order", "horizontal_first"]),
            ("pixels", &["--pixels", "u16x4"]),
            ("resize_first", &["--resize-first", "100"]),
            ("sequences", &["--sequences", "16,64/128"]),
            ("sizes", &["--sizes", "16,24/2"]),
            ("strategy", &["--strategy", "composed"]),
            ("targets", &["--targets", "class=10"]),
            ("thumbnail", &["--thumbnail", "100"]),
            ("transforms", &["--transforms", r#"[{"op": "hflip"}]"#]),
        ];
        let command = run();
        let usual = of(command.clone(), &[]);
        let mut seen = Vec::new();
        for option in command.get_arguments() {
            let (id, long) = (option.get_id().as_str(), option.get_long().map(|long| format!("--{long}")));
            let is_neutral = Setting::named(id)
                .is_some_and(|setting| matches!(setting.effect, SettingEffect::Nothing | SettingEffect::Order));
            if is_neutral || NEUTRAL.contains(&id) || IN_STATE.contains(&id) || matches!(id, "help" | "version") {
                continue;
            }
            let long = long.unwrap();
            let given = match values.iter().find(|(own, _)| *own == id) {
                Some((_, given)) => given.to_vec(),
                None if option.get_action().takes_values() => vec![&*long, "word"],
                None => vec![&*long],
            };
            let settings = of(command.clone(), &given);
            assert_ne!(settings, usual, "{id} decides about the output, or it belongs in one of the lists");
            assert!(!seen.contains(&settings), "{id}: {settings}");
            seen.push(settings);
        }
        assert!(seen.len() > 30, "{seen:?}");
        let known = |id: &&&str| command.get_arguments().any(|option| option.get_id() == **id);
        let unknown: Vec<_> = NEUTRAL.iter().chain(IN_STATE).filter(|id| !known(id)).collect();
        assert!(unknown.is_empty(), "no such options: {unknown:?}");
    }

    #[test]
    fn a_new_option_decides_about_the_output() {
        let new = Arg::new("made_up").long("made-up").default_value("1");
        let command = run().arg(new).arg(Arg::new("twist").long("twist").action(ArgAction::SetTrue));
        let usual = of(command.clone(), &[]);
        assert_eq!(usual, of(run(), &[]), "a state of before stays valid");
        assert_eq!(of(command.clone(), &["--made-up", "1"]), usual);
        assert_eq!(of(command.clone(), &["--made-up", "2"]), format!("{usual}, made-up 2"));
        assert_eq!(of(command, &["--twist"]), format!("{usual}, twist"));
    }

    #[test]
    fn what_makes_the_same_bytes_has_the_same_settings() {
        let usual = of(run(), &[]);
        for same in [
            &["--jpeg-decoder", "cpu"][..],
            &["--jpeg-decoder", "device", "--device", "cpu"],
            &["--strategy", "sequential"],
            &["--batch-size", "5", "--threads", "3", "--prefetch", "7", "--dtype", "f32"],
            &["--image-cache", "1GB", "--entry-points", "none", "--json", "--digest"],
        ] {
            assert_eq!(of(run(), same), usual, "{same:?}");
        }
        assert!(of(run(), &["--jpeg-decoder", "hybrid"]).ends_with("device auto, jpeg-decoder hybrid"));
        assert!(of(run(), &["--last-batch", "drop"]).contains("batch-size 32"));
        assert_eq!(of(run(), &["--fields", "boxes,labels"]), of(run(), &["--fields", "boxes", "--fields", "labels"]));
    }
}
