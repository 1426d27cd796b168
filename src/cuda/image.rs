//! Where the kernels come from.
use crate::error::{Error, Result};
use std::borrow::Cow;
pub(crate) fn image() -> Result<Cow<'static, [u8]>> {
    match std::env::var_os("WARPFEED_KERNELS") {
        Some(path) => std::fs::read(&path).map(Cow::Owned).map_err(Error::io("read", path)),
        None => Err(Error::Device { call: "load the kernels".into(), message: "none".into() }),
    }
}
