//! The functions of nvJPEG as pointers.

use crate::bindings::functions as types;

macro_rules! functions {
    (required { $($required:ident,)* } optional { $($optional:ident: $since:literal,)* }) => {
        /// nvJPEG's functions, by the names of nvjpeg.h. Functions that some versions lack are `Option`s.
        #[derive(Clone, Copy)]
        #[allow(non_snake_case)]
        #[non_exhaustive]
        pub struct Functions {
            $(#[doc = concat!("`", stringify!($required), "`")] pub $required: types::$required,)*
            $(
                #[doc = concat!("`", stringify!($optional), "`, since CUDA ", $since, " or earlier")]
                pub $optional: Option<types::$optional>,
            )*
        }

        #[allow(non_snake_case)]
        impl Functions {
            /// The functions of this list that every nvJPEG since CUDA 11.0 has.
            pub const REQUIRED: &[&str] = &[$(stringify!($required),)*];

            /// The other functions, each with the first version of CUDA that is known to have it.
            pub const OPTIONAL: &[(&str, &str)] = &[$((stringify!($optional), $since),)*];

            /// Looks up all functions in a loaded library. They may be called as long as the library stays loaded.
            ///
            /// # Safety
            ///
            /// The functions that the library exports under these names must be nvJPEG's.
            ///
            /// # Errors
            ///
            /// The names of the required functions that the library lacks. It is then no nvJPEG of CUDA 11 or later.
            pub unsafe fn resolve(library: &libloading::Library) -> Result<Self, Vec<&'static str>> {
                // SAFETY: the types are those that nvjpeg.h declares for these names, which the caller vouches for.
                $(let $required = unsafe { library.get::<types::$required>(stringify!($required)) };)*
                let mut missing = Vec::new();
                $(if $required.is_err() { missing.push(stringify!($required)); })*
                let ($(Ok($required),)*) = ($($required,)*) else {
                    return Err(missing);
                };
                Ok(Self {
                    $($required: *$required,)*
                    // SAFETY: as above.
                    $($optional: unsafe { library.get::<types::$optional>(stringify!($optional)) }.ok().map(|f| *f),)*
                })
            }
        }
    };
}

functions! {
    required {
        nvjpegGetProperty,
        nvjpegGetCudartProperty,
        nvjpegCreateEx,
        nvjpegDestroy,
        nvjpegJpegStateCreate,
        nvjpegJpegStateDestroy,
        nvjpegDecodeBatchedInitialize,
        nvjpegDecodeBatched,
        nvjpegBufferPinnedCreate,
        nvjpegBufferPinnedDestroy,
        nvjpegBufferDeviceCreate,
        nvjpegBufferDeviceDestroy,
        nvjpegStateAttachPinnedBuffer,
        nvjpegStateAttachDeviceBuffer,
        nvjpegJpegStreamCreate,
        nvjpegJpegStreamDestroy,
        nvjpegJpegStreamParse,
        nvjpegJpegStreamGetFrameDimensions,
        nvjpegDecodeParamsCreate,
        nvjpegDecodeParamsDestroy,
        nvjpegDecodeParamsSetOutputFormat,
        nvjpegDecoderCreate,
        nvjpegDecoderDestroy,
        nvjpegDecoderJpegSupported,
        nvjpegDecoderStateCreate,
        nvjpegDecodeJpegHost,
        nvjpegDecodeJpegTransferToDevice,
        nvjpegDecodeJpegDevice,
    }
    optional {
        nvjpegDecodeBatchedPreAllocate: "11.1",
        nvjpegDecodeBatchedSupported: "11.1",
        nvjpegGetHardwareDecoderInfo: "11.8",
        nvjpegCreateExV2: "12.0",
        nvjpegSetDeviceMemoryPadding: "12.0",
        nvjpegSetPinnedMemoryPadding: "12.0",
        nvjpegJpegStreamParseHeader: "12.0",
        nvjpegDecodeParamsSetROI: "12.0",
        nvjpegBufferPinnedResize: "12.3",
        nvjpegBufferDeviceResize: "12.3",
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Functions").finish_non_exhaustive()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_nvjpeg_lacks_every_required_function() {
        let this = libloading::Library::from(libloading::os::unix::Library::this());
        // SAFETY: this program exports none of these names.
        let missing = unsafe { Functions::resolve(&this) }.unwrap_err();
        assert_eq!(missing, Functions::REQUIRED);
    }

    #[test]
    fn every_function_is_listed_once() {
        let names = || Functions::REQUIRED.iter().chain(Functions::OPTIONAL.iter().map(|(name, _)| name));
        assert_eq!(names().collect::<std::collections::HashSet<_>>().len(), names().count());
    }
}
