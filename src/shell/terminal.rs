//! The terminal, if there is one.

use std::io::IsTerminal;

/// Columns and rows of the terminal on standard output; `None` when that is no terminal.
pub fn size() -> Option<(usize, usize)> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the address given, which is that of a local one.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let known = done == 0 && size.ws_col > 0 && size.ws_row > 0;
    Some(if known { (size.ws_col.into(), size.ws_row.into()) } else { (80, 24) })
}
