//! Gives back the pages of the program file that are not needed now.
//!
//! The kernel maps the file in pieces of 64 KiB around each page that is touched. Start-up, configuration, TLS and the
//! start of a pod touch nearly all of it, and it counts as resident although an idle node runs in a small part. Those
//! are clean pages of a file: letting go of them costs a few minor faults later, and nothing is written.

use nix::sys::mman::{MmapAdvise, madvise};
use std::ffi::c_void;
use std::fs;
use std::ptr::NonNull;

/// Unmaps this program's text and constants; what is still needed comes back by itself.
pub fn forget_program() {
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let Ok(maps) = fs::read_to_string("/proc/self/smaps") else { return };
    for (start, length) in unwritten(&maps, &program.to_string_lossy()) {
        let Some(start) = NonNull::new(start as *mut c_void) else { continue };
        // SAFETY: the range is a private mapping of the program file that cannot be written and never was. DONTNEED
        // drops its pages from the page table; the next access reads the same bytes from the file again.
        if let Err(e) = unsafe { madvise(start, length, MmapAdvise::MADV_DONTNEED) } {
            log::debug!("Cannot give back a part of the program: {e}");
        }
    }
}

/// Start and length of each mapping of `program` that is as it stands in the file: private, not writable, and without
/// a page of its own. Such pages are there where the loader has written relocations.
fn unwritten<'a>(smaps: &'a str, program: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
    let mut open = None;
    smaps.lines().filter_map(move |line| {
        if let Some(mapping) = mapping_of(line) {
            let (range, writable) = mapping;
            open = (!writable && line.ends_with(program)).then_some(range);
        }
        let own = line.strip_prefix("Anonymous:")?.trim();
        open.take().filter(|_| own == "0 kB")
    })
}

/// The range of a mapping's first line, and whether it can be written or shared.
fn mapping_of(line: &str) -> Option<((usize, usize), bool)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let private = rest.starts_with("r-xp") || rest.starts_with("r--p");
    Some(((start, end.checked_sub(start)?), !private))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_written_is_given_back() {
        fn check(perms: &str, own: &str, path: &str, want: &[(usize, usize)]) {
            let smaps = format!(
                "7f00000000-7f00001000 rw-p 00000000 00:00 0\nAnonymous:             4 kB\n\
                 7f00001000-7f00003000 {perms} 00001000 fe:00 12 {path}\nSize:            8 kB\n\
                 Anonymous:             {own}\nAnonHugePages:         0 kB\n\
                 7fff000000-7fff002000 r-xp 00000000 00:00 0    [vdso]\nAnonymous:         0 kB\n"
            );
            let found: Vec<_> = unwritten(&smaps, "/usr/bin/steplet").collect();
            assert_eq!(found, want, "{smaps}");
        }
        let program = "/usr/bin/steplet";
        check("r-xp", "0 kB", program, &[(0x7f_0000_1000, 0x2000)]);
        check("r--p", "0 kB", program, &[(0x7f_0000_1000, 0x2000)]);
        check("r--p", "4 kB", program, &[]);
        check("r-xp", "0 kB", "/usr/lib/other.so", &[]);
        for perms in ["rw-p", "rwxp", "r-xs", "---p"] {
            check(perms, "0 kB", program, &[]);
        }
        assert_eq!(unwritten("nonsense", program).next(), None);
    }

    /// KiB of the program file that are in memory for this process.
    fn resident() -> u64 {
        let program = fs::read_link("/proc/self/exe").unwrap();
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut ours, mut total) = (false, 0);
        for line in smaps.lines() {
            if mapping_of(line).is_some() {
                ours = line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy());
            } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| ours) {
                total += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        total
    }

    #[test]
    fn the_text_leaves_memory_and_the_program_goes_on() {
        let before = resident();
        forget_program();
        let after = resident();
        assert!(before > 0 && after < before, "{before} KiB before, {after} KiB after");
    }
}
