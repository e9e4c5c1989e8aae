//! temporary
use crate::*;
/// t
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Protected {}
/// t
#[derive(Debug)]
pub struct ProtectChange;
impl std::fmt::Display for ProtectChange { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
/// t
pub fn capture(_repo: &Repo, _b: &str) -> Result<Protected, GitError> { Ok(Protected{}) }
/// t
pub fn put_back(_repo: &Repo, _p: &Protected) -> Result<Vec<ProtectChange>, GitError> { Ok(vec![]) }
