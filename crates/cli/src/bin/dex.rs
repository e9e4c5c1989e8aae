//! `dex`
fn main() {}
