//! GHASH (NIST SP 800-38D, section 6.4) of the RustCrypto project, in constant time, for messages that
//! lib/crypto/node.ts puts into the memory of this module. scripts/build-ghash.ts compiles it.
#![no_std]

use core::{ptr, slice};
use ghash::universal_hash::{KeyInit, UniversalHash};
use ghash::{Block, GHash, Key};

const BYTES: usize = 8192;
static mut MEMORY: [u8; BYTES] = [0; BYTES];

/// Where the messages go: 8,192 bytes from here on belong to the caller.
#[no_mangle]
pub extern "C" fn memory_at() -> *mut u8 {
    unsafe { ptr::addr_of_mut!(MEMORY) as *mut u8 }
}

/// Writes GHASH under `key` of `count` blocks to `out`: 16 bytes each, all within the memory of the caller.
#[no_mangle]
pub unsafe extern "C" fn ghash(key: *const Key, blocks: *const Block, count: usize, out: *mut Block) {
    let mut hash = GHash::new(&*key);
    hash.update(slice::from_raw_parts(blocks, count));
    *out = hash.finalize();
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
