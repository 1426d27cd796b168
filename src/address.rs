//! The secret parts of a URL: its login, and its query, which may be signed.

use std::borrow::Cow;

/// The parts of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    pub scheme: &'a str,
    /// `user:password`, as written in the URL.
    pub login: Option<&'a str>,
    /// Host and path, which name the object.
    pub location: &'a str,
    pub query: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// The parts of `url`; `None` if it is not a URL.
    pub fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        // Without `=`, the `?` is a wildcard for any character of a name.
        let query = rest.find('?').filter(|at| rest[*at..].contains('='));
        let (named, query) = query.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + 1..])));
        let host = named.split(['/', '#']).next().unwrap_or_default();
        let login_len = match host.rfind('@') {
            // Azure's addresses begin with `container@account`.
            Some(at) if host[..at].contains(':') || !is_azure(scheme) => Some(at),
            // The password contains characters that end a host: the part after the colon is not a valid port.
            None if host
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.bytes().all(|b| b"0123456789{}.,]".contains(&b))) =>
            {
                named.rfind('@')
            }
            _ => None,
        };
        let (login, location) = login_len.map_or((None, named), |at| (Some(&named[..at]), &named[at + 1..]));
        Some(Self { scheme, login, location, query })
    }

    /// The URL without its secret parts.
    pub fn public(&self) -> String {
        format!("{}://{}", self.scheme, self.location)
    }
}

fn is_azure(scheme: &str) -> bool {
    ["az", "adl", "azure", "abfs", "abfss"].contains(&scheme)
}

/// The name of a source without secrets, for printing and storing. A URL loses its login (`user:password@`) and its
/// query, which may be signed.
///
/// ```
/// use warpfeed::source::without_secrets;
///
/// assert_eq!(without_secrets("https://me:secret@host/train.tar?sig=abc"), "https://host/train.tar");
/// assert_eq!(without_secrets("data/train-{000..146}.tar"), "data/train-{000..146}.tar");
/// ```
#[must_use]
pub fn without_secrets(spec: &str) -> Cow<'_, str> {
    match Address::parse(spec) {
        Some(address) if address.login.is_some() || address.query.is_some() => address.public().into(),
        _ => spec.into(),
    }
}

/// A message without the secret parts of the URLs in it.
pub fn message_without_secrets(message: &str) -> String {
    let ends = |byte: char| byte.is_whitespace() || "\"'`<>".contains(byte);
    message
        .split_inclusive(ends)
        .map(|word| {
            let (url, end) = word
                .char_indices()
                .next_back()
                .filter(|(_, last)| ends(*last))
                .map_or((word, ""), |(at, _)| word.split_at(at));
            // Characters right before a URL are taken as part of its scheme.
            format!("{}{end}", without_secrets(url))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_told_from_what_names_the_object() {
        for (url, login, public, query) in [
            ("http://host/a.tar", None, "http://host/a.tar", None),
            ("http://host:80/a@b.tar", None, "http://host:80/a@b.tar", None),
            ("http://me:pass@host:80/a.tar", Some("me:pass"), "http://host:80/a.tar", None),
            ("http://me:p@ss@host/a.tar", Some("me:p@ss"), "http://host/a.tar", None),
            ("http://me:p/s?s@host/a.tar", Some("me:p/s?s"), "http://host/a.tar", None),
            ("https://token@host/a.tar", Some("token"), "https://host/a.tar", None),
            ("https://[::1]:80/a.tar", None, "https://[::1]:80/a.tar", None),
            ("https://host/a.tar?sig=a/b&x=@", None, "https://host/a.tar", Some("sig=a/b&x=@")),
            ("https://me:x@host/a.tar?sig=1", Some("me:x"), "https://host/a.tar", Some("sig=1")),
            ("https://host/part-?[0-4].rec", None, "https://host/part-?[0-4].rec", None),
            ("s3://key:secret@bucket/a.tar", Some("key:secret"), "s3://bucket/a.tar", None),
            ("abfs://container@account/a.tar", None, "abfs://container@account/a.tar", None),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.login, address.query), (login, query), "{url}");
            assert_eq!(address.public(), public);
            assert_eq!(without_secrets(url), public);
        }
        assert_eq!(Address::parse("data/a.tar?x=1"), None);
        assert_eq!(without_secrets("data/a.tar?x=1"), "data/a.tar?x=1");
    }

    #[test]
    #[cfg(feature = "cloud")]
    fn messages_keep_all_but_the_secrets() {
        let message =
            "error for url (http://me:pass@host/a?sig=1&b=2) in \"https://host/b?X-Amz-Signature=ff\": 403, a?b=c";
        let want = "error for url (http://host/a in \"https://host/b\": 403, a?b=c";
        assert_eq!(message_without_secrets(message), want);
        assert_eq!(message_without_secrets("nothing\nhere "), "nothing\nhere ");
    }
}
