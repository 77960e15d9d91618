//! Loaded into QEMU before 8.2, which opens the memory image of a child for writing although it maps it privately. The
//! file that FORKD_READ_ONLY names is opened for reading, whatever the flags are, so the image can be on a read-only
//! mount. Built by scripts/setup.sh without cargo: cargo's builds here are static, and this must be a shared library.

#![no_std]

/// The variable's name, for C
const NAMES: &[u8] = b"FORKD_READ_ONLY\0";
const AT_FDCWD: c_int = -100;
const O_ACCMODE: c_int = 3;

// core has them from Rust 1.64 on
#[allow(non_camel_case_types)]
type c_char = i8;
#[allow(non_camel_case_types)]
type c_int = i32;
#[allow(non_camel_case_types)]
type c_uint = u32;

extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn strcmp(one: *const c_char, other: *const c_char) -> c_int;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
}

unsafe fn open_as_allowed(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let named = getenv(NAMES.as_ptr().cast());
    let is_named = !named.is_null() && strcmp(named, path) == 0;
    openat(AT_FDCWD, path, if is_named { flags & !O_ACCMODE } else { flags }, mode)
}

/// # Safety
/// As open(2). The mode is read even if the caller passed none; open(2) ignores it then.
#[no_mangle]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_as_allowed(path, flags, mode)
}

/// # Safety
/// As open(2).
#[no_mangle]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_as_allowed(path, flags, mode)
}

/// The C library's name for an open without a mode, with fortified headers
///
/// # Safety
/// As open(2).
#[no_mangle]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    open_as_allowed(path, flags, 0)
}

/// # Safety
/// As open(2).
#[no_mangle]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    open_as_allowed(path, flags, 0)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
