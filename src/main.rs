//! The command line; see `cli`.

fn main() {
    std::process::exit(steplet::cli::main(std::env::args_os()));
}
