//! Gives back the program text that only start-up needed.
//!
//! The kernel maps the program file in pieces of 64 KiB around each fault, and start-up, configuration and TLS set-up
//! touch nearly all of it once. Those pages count as resident although an idle node runs in a small part of them.
//! They are clean pages of a file: letting go of them costs a few minor faults, and nothing is written.

use nix::sys::mman::{MmapAdvise, madvise};
use std::ffi::c_void;
use std::fs;
use std::ptr::NonNull;

/// Unmaps the pages of this program's text; those still needed come back by themselves.
pub fn forget_text() {
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for line in maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy())) {
        if let Some((start, length)) = text_of(line) {
            let Some(start) = NonNull::new(start as *mut c_void) else { continue };
            // SAFETY: the range is a private, executable, never written mapping of the program file. DONTNEED
            // drops its pages from the page table; the next access reads the same bytes from the file again.
            if let Err(e) = unsafe { madvise(start, length, MmapAdvise::MADV_DONTNEED) } {
                log::debug!("Cannot give back program text: {e}");
            }
        }
    }
}

/// Start and length of a mapping, if it is text: readable, executable, private, not writable. Read-only data is left
/// alone, since the loader has written its relocations into some of it.
fn text_of(line: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    if !rest.starts_with("r-xp") {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_given_back() {
        let text = "7f00001000-7f00003000 r-xp 00001000 fe:00 12 /usr/bin/steplet";
        assert_eq!(text_of(text), Some((0x7f_0000_1000, 0x2000)));
        for perms in ["r--p", "rw-p", "rwxp", "r-xs", "---p"] {
            assert_eq!(text_of(&text.replace("r-xp", perms)), None, "{perms}");
        }
        assert_eq!(text_of("nonsense"), None);
    }

    #[test]
    fn the_program_goes_on() {
        forget_text();
        assert!(fs::read_to_string("/proc/self/maps").is_ok());
    }
}
