//! Keypoints of the left and of the right, by their names.

use std::collections::HashMap;

/// The keypoints that change places in a mirror.
pub(super) struct Sides {
    /// For each keypoint, the one that it was before the image was mirrored.
    pub pairs: Vec<usize>,
    /// Description of unknown sides.
    pub warning: Option<String>,
}

/// Finds the pairs: `left_eye` and `right_eye`, `eye_l` and `eye_r`, `L Eye` and `R Eye`, `leftEye` and `rightEye`.
pub(super) fn flip_index(names: &[String]) -> Sides {
    let words: Vec<Vec<String>> = names.iter().map(|name| words(name)).collect();
    let mut places: HashMap<&[String], Vec<usize>> = HashMap::new();
    words.iter().enumerate().for_each(|(i, words)| places.entry(words).or_default().push(i));
    let partner = |i: usize| {
        let own = &words[i];
        let mirrored = (0..own.len()).filter_map(|at| {
            let mut other = own.clone();
            other[at] = mirrored(&own[at])?;
            match &places.get(&other[..])?[..] {
                [only] if places[&own[..]].len() == 1 => Some(*only),
                _ => None,
            }
        });
        mirrored.collect::<Vec<_>>()
    };
    let partners: Vec<Vec<usize>> = (0..names.len()).map(partner).collect();
    let pair = |(i, own): (usize, &Vec<usize>)| match own[..] {
        [other] if partners[other] == [i] => other,
        _ => i,
    };
    let pairs: Vec<usize> = partners.iter().enumerate().map(pair).collect();
    let is_alone = |i: &usize| pairs[*i] == *i && words[*i].iter().any(|word| has_side(word));
    let remedy = "give flip_index (--flip-index) if the keypoints have sides";
    let warning = if let Some(alone) = (0..names.len()).find(is_alone) {
        Some(format!(
            "the keypoint {:?} has no partner on the other side, so a mirror leaves it: {remedy}",
            names[alone]
        ))
    } else if names.len() > 1 && pairs.iter().enumerate().all(|(i, other)| i == *other) {
        Some(format!("no names of keypoints have a left and a right, so a mirror exchanges none: {remedy}"))
    } else {
        None
    };
    Sides { pairs, warning }
}

/// The words of a name in small letters: those between other characters, and those that begin with a capital.
fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (i, &character) in characters.iter().enumerate() {
        let before = i.checked_sub(1).map(|before| characters[before]);
        let next = characters.get(i + 1);
        let begins = character.is_uppercase()
            && before.is_some_and(|before| !before.is_uppercase() || next.is_some_and(|next| next.is_lowercase()))
            || character.is_numeric() != before.is_some_and(char::is_numeric);
        if begins || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The word of the other side.
fn mirrored(word: &str) -> Option<String> {
    Some(match word {
        "l" => "r".to_owned(),
        "r" => "l".to_owned(),
        _ => {
            // Also without anything between: lefteye, eyeleft.
            let swap = |own: &str, other: &str| {
                let before = word.strip_prefix(own).map(|rest| format!("{other}{rest}"));
                before.or_else(|| word.strip_suffix(own).map(|rest| format!("{rest}{other}")))
            };
            swap("left", "right").or_else(|| swap("right", "left"))?
        }
    })
}

/// Whether a word says a side. Letters alone may be anything else: it takes a partner to tell.
fn has_side(word: &str) -> bool {
    word.starts_with("left") || word.starts_with("right") || word.ends_with("left")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(names: &[&str]) -> Sides {
        flip_index(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn left_and_right_are_known_in_many_forms() {
        for pair in [
            ["left_eye", "right_eye"],
            ["eye_left", "eye_right"],
            ["eye_l", "eye_r"],
            ["L_Eye", "R_Eye"],
            ["l-eye", "r-eye"],
            ["Left Eye", "Right Eye"],
            ["eye (left)", "eye (right)"],
            ["leftEye", "rightEye"],
            ["LeftEye", "RightEye"],
            ["eyeLeft", "eyeRight"],
            ["lEye", "rEye"],
            ["LEye", "REye"],
            ["EyeL", "EyeR"],
            ["lefteye", "righteye"],
            ["LEFT_EYE", "RIGHT_EYE"],
            ["L_F_Paw", "R_F_Paw"],
            ["eye.L", "eye.R"],
            ["front left paw", "front right paw"],
            ["left1", "right1"],
        ] {
            let found = sides(&["nose", pair[0], pair[1], "neck"]);
            assert_eq!((found.pairs, found.warning), (vec![0, 2, 1, 3], None), "{pair:?}");
        }
        let found = sides(&["left_ear", "left_eye", "right_eye", "right_ear"]);
        assert_eq!((found.pairs, found.warning), (vec![3, 2, 1, 0], None));
    }

    #[test]
    fn what_is_not_known_is_said() {
        for (names, message) in [
            (&["nose", "left_eye", "right_eye", "left_ear"][..], "\"left_ear\" has no partner"),
            (&["nose", "left_eye", "left eye", "right_eye"], "has no partner"),
            (&["oeil gauche", "oeil droit"], "no names of keypoints have a left and a right"),
            (&["1", "2", "3"], "--flip-index"),
        ] {
            let found = sides(names).warning.unwrap();
            assert!(found.contains(message), "{found}");
        }
        assert!(sides(&["tip"]).warning.is_none() && sides(&[]).warning.is_none());
        assert_eq!(sides(&["rear", "lear", "l", "r"]).pairs, [0, 1, 3, 2]);
    }
}
