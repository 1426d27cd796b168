//! The exported functions, by the chapters of CUDA's manual.

/// Defines exported functions, each with its preconditions, its name, a name for the session, and its arguments.
macro_rules! api {
    ($($needs:ident fn $name:ident($session:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the signature is CUDA's")]
        pub extern "C" fn $name($($argument: $type),*) -> u32 {
            $crate::call::call(stringify!($name), $crate::call::Needs::$needs, |$session| {
                let _ = &$session;
                $body
            })
        }
    )*};
}

mod absent;
mod capture;
mod context;
mod device;
mod event;
mod launch;
mod memory;
mod module;
mod nvtx;
mod pool;
pub mod sim;
mod stream;

pub use capture::{
    Captured, check as check_captures, check_idle, check_legacy, forget as forget_captures, joins,
    recorded as captured_now, refuse_event, takes as is_captured,
};
pub use device::COMPUTE_CAPABILITY;
