//! Transforms whose random numbers have a name.

use super::SizeEffect;
use super::recipe::RecipeBuilder;
use super::transform::{RandomTransform, Transform};
use crate::error::{Error, Result};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

/// Longest name, in bytes.
const MOST_BYTES: usize = 64;

/// A transform whose random numbers have a name ([`Transform::named`]).
#[derive(Debug, Clone)]
pub struct Named {
    transform: Box<Transform>,
    name: String,
}

/// The transform's written form, with the name.
impl Serialize for Named {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut written = serde_json::to_value(&self.transform).map_err(S::Error::custom)?;
        written["as"] = self.name.as_str().into();
        written.serialize(to)
    }
}

impl Transform {
    /// Gives the transform's random numbers a name, so that they do not depend on the transform's place. In the written
    /// form it is the field `"as"`.
    ///
    /// Without names a transform draws by its place in the list, and one that is added changes the draws of those after
    /// it. Where any transform of a list has a name, all draw by name: those without one by their kind and their number
    /// among those of their kind without a name. Two policies with one seed then differ where their transforms differ,
    /// and in nothing else (common random numbers), and fewer seeds show which is better. A list without names draws as
    /// ever.
    ///
    /// Names are for the items of a list; inside a combination they are refused, as is a name that comes twice.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::ops::{Op, color_jitter, random_rotation};
    /// use warpfeed::prelude::*;
    ///
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let turn = || random_rotation(-5.0..=5.0).named("turn");
    /// let jitter = || color_jitter(0.4, 0.4, 0.4, 0.1);
    /// let source = EncodedImages::new([(jpeg, 0)]);
    /// let alone = Pipeline::builder(source.clone()).transform(turn()).transform(CenterCrop::new(8)).build()?;
    /// let with_jitter = Pipeline::builder(source).transform(jitter()).transform(turn()).transform(CenterCrop::new(8)).build()?;
    /// let angle = |recipe: Vec<Op>| recipe.into_iter().find(|op| matches!(op, Op::Rotate(_)));
    /// assert_eq!(angle(alone.recipe(3, 0)?), angle(with_jitter.recipe(3, 0)?));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self::Named(Named { transform: Box::new(self), name: name.into() })
    }

    /// The transform without its name.
    pub(crate) fn unnamed(&self) -> &Self {
        match self {
            Self::Named(named) => &named.transform,
            other => other,
        }
    }

    /// Whether the transform has a name.
    pub(super) fn is_named(&self) -> bool {
        matches!(self, Self::Named(_))
    }
}

impl RandomTransform for Named {
    fn validate(&self) -> Result<()> {
        let refuse = |expected: &str, got: String| Err(Error::parameter(self.transform.name(), "as", expected, got));
        if !(1..=MOST_BYTES).contains(&self.name.len()) || self.name.chars().any(char::is_control) {
            return refuse("a name of 1 to 64 bytes without control characters", format!("{:?}", self.name));
        }
        if matches!(*self.transform, Transform::Explicit(_) | Transform::Named(_)) {
            return refuse("one name for a transform, which draws random numbers", self.name.clone());
        }
        self.transform.validate()
    }

    fn size_effect(&self) -> SizeEffect {
        self.transform.size_effect()
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        self.transform.random().draw(recipe)
    }

    fn regions(&self) -> u32 {
        self.transform.regions()
    }

    fn parts(&self) -> &[Transform] {
        std::slice::from_ref(&self.transform)
    }
}

/// The number by which a transform draws, after those `before` it in its list: of its name, or of its kind and its
/// place among those of its kind without a name.
pub(super) fn key(before: &[Transform], transform: &Transform) -> u64 {
    if let Transform::Named(Named { name, .. }) = transform {
        return fnv1a(b"=".iter().chain(name.as_bytes()));
    }
    let kind = transform.name();
    let place = before.iter().filter(|other| !other.is_named() && other.name() == kind).count() as u32;
    fnv1a(kind.as_bytes().iter().chain(b"#").chain(&place.to_le_bytes()))
}

/// The FNV-1a hash of 64 bits.
fn fnv1a<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Checks that no name comes twice in a list.
///
/// # Errors
/// [`Error::Parameter`] with the name.
pub(crate) fn check_names(transforms: &[Transform]) -> Result<()> {
    let names = || {
        transforms
            .iter()
            .filter_map(|transform| if let Transform::Named(named) = transform { Some(named) } else { None })
    };
    for (place, named) in names().enumerate() {
        if names().take(place).any(|other| other.name == named.name) {
            let expected = "names that come once in a list";
            return Err(Error::parameter(named.transform.name(), "as", expected, format!("{:?} again", named.name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::recipe::draw_recipe;
    use crate::ops::transform::SampleInfo;
    use crate::ops::{
        Hflip, Maybe, Op, Repeat, SampleRng, TransformFile, color_jitter, random_resized_crop, random_rotation,
    };
    use crate::raster::Size;
    use crate::rng::Pick;
    use crate::targets::Annotation;

    fn drawn(transforms: &[Transform], seed: u64) -> Vec<Op> {
        let annotation = Annotation::default();
        let sample = SampleInfo::new(Pick { index: 5, repetition: 0 }, Size::new(90, 80), &annotation);
        draw_recipe(&[], transforms, &mut SampleRng::for_sample(seed, 2, 5), sample, None).unwrap().ops
    }

    fn turn() -> Transform {
        random_rotation(-90.0..=90.0)
    }

    #[test]
    fn a_transform_that_is_added_moves_no_other() {
        let crop = || random_resized_crop(32);
        let (few, more) = (
            [turn().named("turn"), crop()],
            [color_jitter(0.4, 0.4, 0.4, 0.1), turn().named("turn"), Hflip.into(), crop()],
        );
        for seed in 0..20 {
            let (few, more) = (drawn(&few, seed), drawn(&more, seed));
            assert_eq!(few[..], [more[more.len() - 3].clone(), more[more.len() - 1].clone()]);
        }
        // Without names it does.
        let places = |transforms: &[Transform]| drawn(transforms, 0).pop();
        assert_ne!(places(&[turn()]), places(&[color_jitter(0.4, 0.4, 0.4, 0.1), turn()]));
    }

    #[test]
    fn names_and_numbers_of_a_kind_draw_independently() {
        let four = drawn(&[turn(), turn().named("a"), turn(), turn().named("b")], 1);
        assert!((0..4).all(|i| (0..i).all(|j| four[i] != four[j])), "{four:?}");
        // One with a name does not count among those without.
        let two = drawn(&[turn(), turn(), turn().named("b")], 1);
        assert_eq!(two[..], [four[0].clone(), four[2].clone(), four[3].clone()]);
    }

    #[test]
    fn a_list_without_names_draws_by_place_as_ever() {
        let mut rng = SampleRng::for_sample(7, 2, 5);
        let Some(Op::Rotate(second)) = drawn(&[turn(), turn()], 7).pop() else { panic!("a rotation is drawn") };
        assert_eq!(second.degrees.to_bits(), rng.at(1).uniform(-90.0, 90.0).to_bits());
    }

    /// The draws are a promise; a separate Python program computed the first bits from the description in rng.rs.
    #[test]
    fn golden_draws() {
        assert_eq!(key(&[], &turn().named("jitter")), GOLDEN_KEYS[0]);
        assert_eq!(key(&[turn()], &turn()), GOLDEN_KEYS[1]);
        let mut rng = SampleRng::for_sample(42, 3, 7);
        assert_eq!(rng.named(GOLDEN_KEYS[0]).bits(), GOLDEN_BITS);
        assert_eq!(rng.bits(), SampleRng::for_sample(42, 3, 7).bits(), "the sample's own numbers stay");
    }

    const GOLDEN_KEYS: [u64; 2] = [0xd27c_a9fd_75d2_139e, 0x6738_b055_9338_34ef];
    const GOLDEN_BITS: u64 = 0x8932_6ea7_bacd_b9ff;

    #[test]
    fn the_written_form_has_the_name() {
        let text = r#"[{"transform":"random_rotation","degrees":[-5,5],"as":"turn"},{"op":"hflip"}]"#;
        let read = TransformFile::parse(text, "flips").unwrap().into_transforms().unwrap();
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!((&written[0]["as"], &written[0]["transform"]), (&"turn".into(), &"random_rotation".into()));
        let again = TransformFile::parse(&written.to_string(), "flips").unwrap().into_transforms().unwrap();
        assert_eq!(drawn(&read, 1), drawn(&again, 1));
        for (wrong, says) in [
            (r#"[{"transform":"random_grayscale","p":1,"as":7}]"#, "as: expected a name"),
            (r#"[{"transform":"random_grayscale","p":1,"as":""}]"#, "1 to 64 bytes"),
            (r#"[{"op":"hflip","as":"flip"}]"#, "draws random numbers"),
            (
                r#"[{"transform":"maybe","p":1,"transforms":[{"transform":"random_grayscale","p":1,"as":"a"}]}]"#,
                "combination",
            ),
        ] {
            let error = TransformFile::parse(wrong, "flips").unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn names_come_once_and_not_inside() {
        let twice = [turn().named("a"), turn().named("b"), turn().named("a")];
        assert!(check_names(&twice[..2]).is_ok());
        assert!(check_names(&twice).unwrap_err().to_string().contains("\"a\" again"));
        let inside: [Transform; 2] =
            [Maybe::new(0.5, [turn().named("a")]).into(), Repeat::new(2, [turn().named("a")]).into()];
        assert!(inside.iter().all(|transform| transform.validate().unwrap_err().to_string().contains("combination")));
    }
}
