//! The specification of a batch's targets, applied to samples.

use super::{Found, MAX_TARGET_BYTES, Target, too_long, wrong};
use crate::error::{Error, Result};
use crate::fields::Fields;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Largest number of numbers in a sample's target.
const MAX_NUMBERS: u32 = 1 << 20;

/// Largest difference between the sum of a soft target and 1.
const SOFT_TOLERANCE: f64 = 1e-3;

/// The targets that a pipeline delivers with its images
/// ([`PipelineBuilder::targets`](crate::PipelineBuilder::targets)): their form, and their field in the source.
///
/// The written form, as the command reads it, is `class=10`, `multi-hot=80:json.tags`, `float=4:npy`, `soft=1000/0.1`
/// or `bytes:txt`. The part after the colon is the field. docs/targets.md lists the fields of each format.
///
/// ```
/// use warpfeed::TargetSpec;
///
/// let spec: TargetSpec = "float=4:json.box".parse()?;
/// assert_eq!(spec, TargetSpec::floats(4).field("json.box"));
/// assert_eq!(spec.to_string(), "float=4:json.box");
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TargetSpec {
    pub(crate) field: Option<String>,
    pub(crate) form: Form,
}

/// The form of a target in a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Form {
    Class { classes: u32 },
    MultiHot { classes: u32 },
    Floats { len: u32 },
    Soft { classes: u32, smoothing: f64 },
    Bytes,
}

/// The type of a target's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetType {
    /// 32-bit floating point.
    F32,
    /// 32-bit unsigned integers, such as class numbers.
    U32,
}

impl TargetSpec {
    fn new(form: Form) -> Self {
        Self { field: None, form }
    }

    /// The number of a class, below `classes`: `[N, 1]`, u32.
    #[must_use]
    pub fn class(classes: u32) -> Self {
        Self::new(Form::Class { classes })
    }

    /// Any number of class numbers, each below `classes`: `[N, classes]`, f32. A class in the target is 1, all others
    /// are 0.
    #[must_use]
    pub fn multi_hot(classes: u32) -> Self {
        Self::new(Form::MultiHot { classes })
    }

    /// A fixed number of numbers: `[N, len]`, f32.
    #[must_use]
    pub fn floats(len: u32) -> Self {
        Self::new(Form::Floats { len })
    }

    /// A probability for each class: `[N, classes]`, f32. If the source stores a class number, this class has
    /// probability 1 and the others 0, smoothed by [`smoothing`](Self::smoothing). If the source stores numbers for all
    /// classes, they are used as they are; they must not be negative, and their sum must be within 0.001 of 1.
    #[must_use]
    pub fn soft(classes: u32) -> Self {
        Self::new(Form::Soft { classes, smoothing: 0.0 })
    }

    /// Bytes as stored, of any length up to 1 MiB.
    #[must_use]
    pub fn bytes() -> Self {
        Self::new(Form::Bytes)
    }

    /// The target's field in the source. Default: the label.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>) -> Self {
        self.field = Some(name.into());
        self
    }

    /// Label smoothing of [`soft`](Self::soft) targets, as in timm: each class gets `smoothing / classes`, and the
    /// sample's class gets `1 - smoothing` in addition. It has no effect on other forms.
    #[must_use]
    pub fn smoothing(mut self, smoothing: f64) -> Self {
        if let Form::Soft { smoothing: own, .. } = &mut self.form {
            *own = smoothing;
        }
        self
    }

    /// The type of the numbers that batches have; `None` for bytes.
    #[must_use]
    pub fn element(&self) -> Option<TargetType> {
        match self.form {
            Form::Class { .. } => Some(TargetType::U32),
            Form::MultiHot { .. } | Form::Floats { .. } | Form::Soft { .. } => Some(TargetType::F32),
            Form::Bytes => None,
        }
    }

    /// Number of numbers per sample; 0 for bytes.
    pub(crate) fn len(&self) -> usize {
        match self.form {
            Form::Class { .. } => 1,
            Form::MultiHot { classes } | Form::Soft { classes, .. } => classes as usize,
            Form::Floats { len } => len as usize,
            Form::Bytes => 0,
        }
    }

    /// Upper bound of the size of a sample's target in a batch, in bytes.
    pub(crate) fn max_bytes(&self) -> u64 {
        if self.form == Form::Bytes { MAX_TARGET_BYTES } else { 4 * self.len() as u64 }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |parameter, expected: &str, got: &dyn fmt::Display| {
            Err(Error::parameter("targets", parameter, expected, got))
        };
        let classes = match self.form {
            Form::Class { classes: 0 } => return refuse("classes", "1 or more", &0),
            Form::Class { .. } | Form::Bytes => 1,
            Form::MultiHot { classes } | Form::Soft { classes, .. } => classes,
            Form::Floats { len } => len,
        };
        if !(1..=MAX_NUMBERS).contains(&classes) {
            return refuse("numbers a sample", &format!("1 to {MAX_NUMBERS}"), &classes);
        }
        match self.form {
            Form::Soft { smoothing, .. } if !(0.0..=1.0).contains(&smoothing) => {
                refuse("smoothing", "0 to 1", &smoothing)
            }
            _ if self.field.as_deref() == Some("") => refuse("field", "the name of a field", &"an empty one"),
            _ => Ok(()),
        }
    }

    /// Checks that labels of a source can be such targets: that it has labels, as far as that is known, and no more
    /// than `named` classes. A source may have 0 named classes.
    pub(crate) fn check_labels(&self, has_labels: Option<bool>, named: usize) -> Result<()> {
        if self.field.is_none() && has_labels == Some(false) {
            let expected = "the name of a field: the source has no labels, which are the targets without one";
            return Err(Error::parameter("targets", "field", expected, "none"));
        }
        let (Form::Class { classes } | Form::MultiHot { classes } | Form::Soft { classes, .. }) = self.form else {
            return Ok(());
        };
        if self.field.is_some() || named <= classes as usize {
            return Ok(());
        }
        let expected = format!("{named} or more, the classes of the source, whose labels are the targets");
        Err(Error::parameter("targets", "classes", expected, classes))
    }

    /// A sample's target in this form: a class, floats or bytes.
    ///
    /// # Errors
    /// [`Error::Target`] if the target does not have this form.
    pub(crate) fn row(&self, target: Target) -> Result<Target> {
        self.make(target).map_err(|message| wrong(self.field.as_deref(), message))
    }

    fn make(&self, target: Target) -> Result<Target, String> {
        if target.len_bytes() > MAX_TARGET_BYTES {
            return Err(too_long(target.len_bytes()));
        }
        let class = |number: f64, classes: u32| {
            let is_class = number.fract() == 0.0 && (0.0..f64::from(classes)).contains(&number);
            is_class
                .then_some(number as u32)
                .ok_or_else(|| format!("it has {number}, not a class from 0 to {}", classes - 1))
        };
        let row = match (self.form, target) {
            (Form::Bytes, Target::Bytes(bytes)) => return Ok(Target::Bytes(bytes)),
            (Form::Bytes, _) => return Err("it is numbers, and bytes were asked for".to_owned()),
            (form, target) => (form, target.numbers()?),
        };
        match row {
            (Form::Class { classes }, numbers) => match numbers[..] {
                [number] => class(number, classes).map(Target::Class),
                _ => Err(format!("it has {} numbers, not that of one class", numbers.len())),
            },
            (Form::MultiHot { classes }, numbers) => {
                let mut row = vec![0.0; classes as usize];
                for number in numbers {
                    row[class(number, classes)? as usize] = 1.0;
                }
                Ok(Target::Floats(row))
            }
            // With one class, its number and a distribution over it are distinguished by their value.
            (Form::Soft { classes, smoothing }, numbers)
                if numbers.len() == 1 && (classes > 1 || numbers[0] == 0.0) =>
            {
                let off = smoothing / f64::from(classes);
                let mut row = vec![off as f32; classes as usize];
                row[class(numbers[0], classes)? as usize] = (1.0 - smoothing + off) as f32;
                Ok(Target::Floats(row))
            }
            (_, numbers) if numbers.len() != self.len() => {
                Err(format!("it has {} numbers, not {}", numbers.len(), self.len()))
            }
            (form, numbers) => {
                let sum: f64 = numbers.iter().sum();
                if let Form::Soft { .. } = form
                    && (numbers.iter().any(|number| *number < 0.0) || (sum - 1.0).abs() > SOFT_TOLERANCE)
                {
                    return Err(format!("it is no distribution over classes: the sum is {sum}"));
                }
                match numbers.iter().find(|number| (**number as f32).is_infinite()) {
                    Some(number) => Err(format!("it has {number}, which f32 cannot hold")),
                    None => Ok(Target::Floats(numbers.into_iter().map(|number| number as f32).collect())),
                }
            }
        }
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Class { classes } => write!(f, "class={classes}")?,
            Form::MultiHot { classes } => write!(f, "multi-hot={classes}")?,
            Form::Floats { len } => write!(f, "float={len}")?,
            Form::Soft { classes, smoothing: 0.0 } => write!(f, "soft={classes}")?,
            Form::Soft { classes, smoothing } => write!(f, "soft={classes}/{smoothing}")?,
            Form::Bytes => f.write_str("bytes")?,
        }
        self.field.as_ref().map_or(Ok(()), |field| write!(f, ":{field}"))
    }
}

text_value!(TargetSpec);

impl FromStr for TargetSpec {
    type Err = Error;

    /// Reads `class=K`, `multi-hot=K`, `float=N`, `soft=K`, `soft=K/SMOOTHING` or `bytes`, optionally followed by a
    /// colon and the field.
    fn from_str(text: &str) -> Result<Self> {
        let (form, field) = text.split_once(':').map_or((text, None), |(form, field)| (form, Some(field.to_owned())));
        let parse = || {
            let Some((name, number)) = form.split_once('=') else {
                return (form == "bytes").then_some(Form::Bytes);
            };
            Some(match name {
                "class" => Form::Class { classes: number.parse().ok()? },
                "multi-hot" => Form::MultiHot { classes: number.parse().ok()? },
                "float" => Form::Floats { len: number.parse().ok()? },
                "soft" => {
                    let (classes, smoothing) = number.split_once('/').unwrap_or((number, "0"));
                    Form::Soft { classes: classes.parse().ok()?, smoothing: smoothing.parse().ok()? }
                }
                _ => return None,
            })
        };
        let expected = "class=K, multi-hot=K, float=N, soft=K, soft=K/SMOOTHING or bytes, and :FIELD after it";
        let form = parse().ok_or_else(|| Error::parameter("targets", "spec", expected, text))?;
        let spec = Self { field, form };
        spec.check().map(|()| spec)
    }
}

/// A sample's label and target, in the form that batches have them in, and its fields as the source has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Annotation {
    /// The label; `None` if the sample has none.
    pub(crate) label: Option<u32>,
    /// A class, floats or bytes; `None` if no targets were asked for.
    pub(crate) target: Option<Target>,
    /// `None` if no fields were asked for.
    pub(crate) fields: Option<Arc<Fields>>,
}

impl Annotation {
    /// The annotation of a sample by its label and by what the source has found of it.
    pub(crate) fn new(spec: Option<&TargetSpec>, label: Option<u32>, Found { target, fields }: Found) -> Result<Self> {
        let row =
            |spec: &TargetSpec| spec.row(target.or(label.map(Target::Class)).ok_or_else(|| super::missing("label"))?);
        let target = spec.map(row).transpose()?;
        Ok(Self { label, target, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(spec: &str, target: Target) -> Result<Target> {
        spec.parse::<TargetSpec>().unwrap().row(target)
    }

    #[test]
    fn targets_become_what_was_asked_for() {
        let text = |text: &str| Target::Bytes(text.as_bytes().to_vec());
        assert_eq!(row("class=10", Target::Class(7)).unwrap(), Target::Class(7));
        assert_eq!(row("class=10:json.kind", text("7")).unwrap(), Target::Class(7));
        let hot = Target::Floats(vec![0.0, 1.0, 0.0, 1.0]);
        assert_eq!(row("multi-hot=4", text("[3, 1, 3]")).unwrap(), hot);
        assert_eq!(row("multi-hot=4", Target::Integers(vec![])).unwrap(), Target::Floats(vec![0.0; 4]));
        assert_eq!(row("float=2", text("0.5 -1e3")).unwrap(), Target::Floats(vec![0.5, -1000.0]));
        assert_eq!(row("soft=2", Target::Floats(vec![0.25, 0.75])).unwrap(), Target::Floats(vec![0.25, 0.75]));
        // timm: off 0.1 / 4, on 1 - 0.1 + 0.1 / 4.
        let smooth = Target::Floats(vec![0.025, 0.925, 0.025, 0.025]);
        assert_eq!(row("soft=4/0.1", Target::Class(1)).unwrap(), smooth);
        assert_eq!(row("bytes:txt", text("a cat")).unwrap(), Target::Bytes(b"a cat".to_vec()));
    }

    #[test]
    fn what_is_no_such_target_is_a_bad_sample_that_names_the_field() {
        for (spec, target) in [
            ("class=10:x", Target::Class(10)),
            ("class=10:x", Target::Integers(vec![1, 2])),
            ("class=10:x", Target::Floats(vec![0.5])),
            ("multi-hot=4:x", Target::Integers(vec![-1])),
            ("float=2:x", Target::Floats(vec![1.0])),
            ("float=1:x", Target::Floats(vec![f32::NAN])),
            ("float=1:x", Target::Bytes(b"1e300".to_vec())),
            ("soft=2:x", Target::Floats(vec![0.5, 0.6])),
            ("soft=2:x", Target::Floats(vec![-0.5, 1.5])),
            ("bytes:x", Target::Integers(vec![1])),
            ("bytes:x", Target::Bytes(vec![0; 1 + MAX_TARGET_BYTES as usize])),
        ] {
            let error = row(spec, target).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().starts_with("target x: "), "{spec}: {error}");
        }
    }

    #[test]
    fn specs_are_texts() {
        for text in ["class=10", "multi-hot=80:json.tags", "float=4:npy", "soft=1000/0.1", "soft=7", "bytes:a:b"] {
            assert_eq!(text.parse::<TargetSpec>().unwrap().to_string(), text);
        }
        for wrong in ["", "class", "class=0", "class=x", "float=0", "soft=3/2", "soft=3/nan", "bytes:", "bytes=3"] {
            assert!(wrong.parse::<TargetSpec>().unwrap_err().is_parameter(), "{wrong}");
        }
        assert!(TargetSpec::floats(MAX_NUMBERS + 1).check().is_err());
    }
}
