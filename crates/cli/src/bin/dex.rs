//! `dex`: unattended feature runs.

fn main() -> std::process::ExitCode {
    cli::dex_main()
}
