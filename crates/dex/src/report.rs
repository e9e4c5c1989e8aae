//! The morning after: what came of a run. Pure.
