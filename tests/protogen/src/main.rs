//! `protogen REPO`: proto/*.proto to the committed Rust files, one file an API.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let repo = std::env::args().nth(1).ok_or("usage: protogen REPO")?;
    let repo = Path::new(&repo);
    for (proto, file, rust) in [
        ("proto/cri/v1", "api.proto", "src/api/cri.rs"),
        ("proto/tape/v1", "tape.proto", "src/shell/tape/proto.rs"),
    ] {
        let dir = repo.join(proto);
        if !dir.join(file).exists() {
            continue;
        }
        let out = tempdir()?;
        let fds = protox::compile([file], [&dir])?;
        let package = fds.file[0].package().to_owned();
        prost_build::Config::new()
            .btree_map(["."]) // map order must be the same in every run
            .disable_comments(["."])
            .out_dir(&out)
            .compile_fds(fds)?;
        let text = std::fs::read_to_string(out.join(format!("{package}.rs")))?;
        let head = format!("// Made by `make proto` from {proto}/{file}. Do not edit.\n");
        std::fs::create_dir_all(repo.join(rust).parent().unwrap())?;
        std::fs::write(repo.join(rust), head + &text)?;
        println!("{rust}");
    }
    Ok(())
}

fn tempdir() -> std::io::Result<std::path::PathBuf> {
    let dir = std::env::temp_dir().join(format!("protogen-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
