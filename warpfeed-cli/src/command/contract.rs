//! `warpfeed contract`: writes and checks contracts of preprocessing.

use super::options::PresetOptions;
use super::output::{escape, print, print_json};
use super::setting_args::{OfImages, SettingArgs, choice};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use warpfeed::contract::{Comparison, Contract, Difference, ProbeOutcome, ProbeResult, write_probes};
use warpfeed::source::read_text_limited;
use warpfeed::{
    DType, Device, Error, JpegDecoder, Preprocessor, PreprocessorOptions, Result, hugging_face_ops, timm_ops,
};

/// Largest configuration of a model, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 24;

/// Write down what preprocessing does to images, and check machines and other programs against it
///
/// A contract has the operations and digests of made probe images after each of them.
#[derive(Args)]
pub struct ContractArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Write(WriteArgs),
    Probes(ProbesArgs),
    Check(CheckArgs),
}

impl ContractArgs {
    /// Runs the command. Returns the exit code: 1 if a comparison has found a difference.
    pub fn run(self) -> Result<u8> {
        match self.command {
            Command::Write(write) => write.run().map(|()| 0),
            Command::Probes(probes) => probes.run().map(|()| 0),
            Command::Check(check) => check.run(),
        }
    }
}

/// Write the contract of a preset, of operations, or of a model's published configuration
#[derive(Args)]
struct WriteArgs {
    #[command(flatten)]
    preset: PresetOptions,
    /// Take the operations of a model of timm: its config.json, or the pretrained_cfg in it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "transforms", "hugging_face"])]
    timm: Option<PathBuf>,
    /// Take the operations of a model of Hugging Face: its preprocessor_config.json.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "transforms"])]
    hugging_face: Option<PathBuf>,
    #[command(flatten)]
    opening: SettingArgs<OfImages>,
    /// Element type of the tensor [u8 is not normalized]
    #[arg(long, value_parser = choice::<DType>("dtype"), default_value = "f32")]
    dtype: DType,
    /// Output file.
    #[arg(short, long, value_name = "FILE", default_value = "contract.json")]
    output: PathBuf,
}

impl WriteArgs {
    fn run(self) -> Result<()> {
        let read = |path: &PathBuf| read_text_limited(path, MAX_CONFIG_BYTES);
        let options = PreprocessorOptions::default().dtype(self.dtype);
        let options = self.opening.given().try_fold(options, |options, (name, text)| options.set(name, text))?;
        let contract = match (&self.timm, &self.hugging_face) {
            (Some(path), _) => Contract::new(timm_ops(&read(path)?)?, &options),
            (None, Some(path)) => Contract::new(hugging_face_ops(&read(path)?)?, &options),
            (None, None) if self.dtype == DType::U8 => {
                Contract::of_transforms(&self.preset.pixels()?.into_transforms()?, &options)
            }
            (None, None) => Contract::of_transforms(&self.preset.ops()?, &options),
        }?;
        contract.write(&self.output)?;
        let names: Vec<&str> = contract.operations().iter().map(warpfeed::ops::Op::name).collect();
        print(&format!("{}: {}\n", escape(self.output.display()), names.join(", ")))
    }
}

/// Write the probe images, for another program
#[derive(Args)]
struct ProbesArgs {
    /// Folder for the images.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
}

impl ProbesArgs {
    fn run(self) -> Result<()> {
        let probes = write_probes(&self.output)?;
        print(&format!("{probes} probe images: {}\n", escape(self.output.display())))
    }
}

/// Check this machine, or what another program made of the probe images, against a contract
///
/// Exit code 1 if something differs.
#[derive(Args)]
struct CheckArgs {
    /// The contract.
    #[arg(value_name = "CONTRACT", default_value = "contract.json")]
    contract: PathBuf,
    /// Folder with another program's tensors: NAME.npy, or without normalization NAME.png, for each probe image.
    ///
    /// NAME.0.png, NAME.1.png and so on may hold the decoded image and the image after each operation.
    #[arg(long, value_name = "FOLDER")]
    against: Option<PathBuf>,
    /// Largest difference of equal values, in levels of 0 to 255.
    #[arg(long, value_name = "LEVELS", default_value_t = 0.02, requires = "against")]
    tolerance: f64,
    /// Device to check: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto", conflicts_with = "against")]
    device: Device,
    /// JPEG decoder to check, for a GPU: auto, device, cpu, hybrid, hardware, hardware-device.
    #[arg(long, value_name = "PATH", default_value = "auto", conflicts_with = "against")]
    jpeg_decoder: JpegDecoder,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The result of a check of this machine.
#[derive(Serialize)]
struct Kept {
    equal: bool,
    device: String,
    operations: usize,
}

impl CheckArgs {
    fn run(self) -> Result<u8> {
        let contract = Contract::read(&self.contract)?;
        let Some(folder) = &self.against else {
            let options = PreprocessorOptions::default().device(self.device).jpeg_decoder(self.jpeg_decoder);
            Preprocessor::from_contract(&contract, &options)?;
            let operations = contract.operations().len();
            if self.json {
                print_json(&Kept { equal: true, device: self.device.to_string(), operations })?;
            } else {
                print(&format!("This machine keeps the contract {}.\n", escape(self.contract.display())))?;
            }
            return Ok(0);
        };
        if !self.tolerance.is_finite() || self.tolerance < 0.0 {
            let (expected, got) = ("a number of levels from 0 on".to_owned(), self.tolerance.to_string());
            return Err(Error::Parameter { operation: "contract", parameter: "tolerance", expected, got });
        }
        let found = contract.compare(folder, self.tolerance)?;
        if self.json { print_json(&found) } else { print(&text(&found)) }?;
        Ok(u8::from(!found.is_equal()))
    }
}

fn text(found: &Comparison) -> String {
    let Comparison { equal, differing, missing, causes, unexplained, probes, .. } = found;
    let mut text =
        format!("{equal} of {} probe images are equal, {differing} differ, {missing} are missing\n", probes.len());
    // Writing to a string cannot fail.
    for cause in causes {
        let _ = writeln!(text, "\n{}: {}\n  {}", cause.stage, cause.text, cause.images.join(" "));
    }
    if !unexplained.is_empty() {
        let _ = writeln!(
            text,
            "\nno known cause explains {}\n  write the image after each operation as NAME.0.png, NAME.1.png and so on, and the \
             first that differs is named",
            unexplained.join(" ")
        );
    }
    let differing = probes.iter().filter(|probe| probe.outcome != ProbeOutcome::Equal);
    let lines: Vec<(&str, String)> = differing.map(|probe| (probe.image.as_str(), outcome(probe))).collect();
    if !lines.is_empty() {
        let width = lines.iter().map(|(image, _)| image.len()).max().unwrap_or(0);
        text.push('\n');
        for (image, outcome) in lines {
            let _ = writeln!(text, "{image:width$}  {outcome}");
        }
    }
    text
}

fn outcome(probe: &ProbeResult) -> String {
    let mut text = match (probe.outcome, probe.difference) {
        (ProbeOutcome::OtherSize([width, height]), _) => format!("is {width}x{height}"),
        (ProbeOutcome::OtherLayout, _) => "equal, with another order of dimensions".to_owned(),
        (ProbeOutcome::Missing, _) => "missing".to_owned(),
        (ProbeOutcome::NotRefused, _) => "the contract refuses this image".to_owned(),
        (_, Some(Difference { mean, max, .. })) => format!("differs by {mean:.2} levels of 255, at most {max:.1}"),
        (_, None) => "equal".to_owned(),
    };
    if let Some(first) = &probe.first {
        text += &format!("; first after {first}");
    }
    text
}
