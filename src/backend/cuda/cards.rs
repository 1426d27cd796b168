//! The driver's GPUs, in its order, which ordinals refer to.
#![allow(unsafe_code)]

use crate::cuda::driver::{check, device_count};
use crate::error::Result;
use cudarc::driver::{result, sys};
use std::ffi::{CStr, CString, c_char};

/// A GPU, as the driver describes it.
#[derive(Debug, Clone)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Major and minor number of the compute capability.
    pub capability: (i32, i32),
    /// Its memory.
    pub memory_bytes: usize,
}

/// All GPUs. The list is empty if there is no driver.
pub fn cards() -> Result<Vec<Card>> {
    (0..device_count()?).map(card).collect()
}

fn card(ordinal: i32) -> Result<Card> {
    let device = check("cuDeviceGet", result::device::get(ordinal))?;
    let number = |attribute| {
        // SAFETY: the driver has returned this device.
        check("cuDeviceGetAttribute", unsafe { result::device::get_attribute(device, attribute) })
    };
    Ok(Card {
        name: check("cuDeviceGetName", result::device::get_name(device))?,
        capability: (
            number(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        // SAFETY: as above.
        memory_bytes: check("cuDeviceTotalMem", unsafe { result::device::total_mem(device) })?,
    })
}

/// The PCI bus address of each GPU. Other libraries number GPUs in different orders, but know these addresses.
pub fn pci_addresses() -> Result<Vec<CString>> {
    let address = |ordinal| {
        let device = check("cuDeviceGet", result::device::get(ordinal))?;
        // Longer than the longest address, `00000000:00:00.0`.
        let mut address = [0_u8; 32];
        // SAFETY: the buffer is as long as the call is told; the driver has returned this device.
        let found = unsafe {
            sys::cuDeviceGetPCIBusId(address.as_mut_ptr().cast::<c_char>(), address.len() as i32, device).result()
        };
        check("cuDeviceGetPCIBusId", found)?;
        Ok(CStr::from_bytes_until_nul(&address).map(CStr::to_owned).unwrap_or_default())
    };
    (0..device_count()?).map(address).collect()
}
