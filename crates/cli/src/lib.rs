//! What the programs share. The only crate that prints.
