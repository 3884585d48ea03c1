//! The command line; see `cli`.

fn main() {
    let status = steplet::cli::main(std::env::args_os());
    steplet::shell::log::drain();
    std::process::exit(status);
}
