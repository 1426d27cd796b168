//! Base 64 (RFC 4648, section 4), without padding.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Three bytes are four digits; one or two at the end are two or three.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((4 * bytes.len()).div_ceil(3));
    for group in bytes.chunks(3) {
        let bits = group.iter().zip([16, 8, 0]).fold(0, |bits, (byte, shift)| bits | u32::from(*byte) << shift);
        let digits = [18, 12, 6, 0].map(|shift| char::from(DIGITS[(bits >> shift & 63) as usize]));
        text.extend(&digits[..=group.len()]);
    }
    text
}

/// `None` if `encode` writes no such text.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(3 * text.len() / 4);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0;
        for (digit, shift) in group.iter().zip([18, 12, 6, 0]) {
            bits |= (DIGITS.iter().position(|known| known == digit)? as u32) << shift;
        }
        let [_, decoded @ ..] = bits.to_be_bytes();
        let (whole, rest) = decoded.split_at(group.len() - 1);
        if whole.is_empty() || rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(whole);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648() {
        let examples =
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")];
        for (bytes, text) in examples {
            assert_eq!((encode(bytes.as_bytes()), decode(text)), (text.to_owned(), Some(bytes.into())));
        }
    }

    #[test]
    fn every_byte_comes_back() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for len in 0..bytes.len() {
            assert_eq!(decode(&encode(&bytes[..len])).as_deref(), Some(&bytes[..len]));
        }
    }

    #[test]
    fn other_text_is_refused() {
        // A lone digit, padding, other characters, and bits behind the last byte.
        for text in ["Z", "Zm9vY", "Zg==", "Zm 9", "Zm9-", "Zm9_", "Z\u{e9}", "Zh", "Zm9"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
