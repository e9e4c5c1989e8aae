//! A work tree, a home and a scratch directory, the pinned CLI, and the model it talks to.

use std::path::Path;
use std::time::Duration;

use agents::claude::Claude;
use agents::{Request, Stop};
use testkit::fake_model::{FakeModel, Turn};
use testkit::real_agent;

use crate::ground::{Ground, Ran};

/// A work tree, a home and a scratch directory, and the model to talk to.
pub(crate) struct World {
    ground: Ground,
    pub(crate) model: FakeModel,
    pub(crate) claude: Claude,
}

impl std::ops::Deref for World {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl World {
    pub(crate) fn new(turns: Vec<Turn>) -> Option<World> {
        World::start(|_| FakeModel::start(turns))
    }

    /// For turns that name paths: they are made when the world's root is known.
    pub(crate) fn at_root(turns: impl FnOnce(&Path) -> Vec<Turn>) -> Option<World> {
        World::start(|root| FakeModel::start(turns(root)))
    }

    pub(crate) fn start(model: impl FnOnce(&Path) -> FakeModel) -> Option<World> {
        let program = real_agent::claude()?;
        let ground = Ground::new();
        let model = model(ground.root());
        let environment = ground.environment([
            ("ANTHROPIC_BASE_URL", model.url().into()),
            ("ANTHROPIC_API_KEY", "dummy-key".into()),
        ]);
        let claude = Claude {
            program: program.to_owned(),
            environment,
        };
        Some(World {
            ground,
            model,
            claude,
        })
    }

    pub(crate) fn request(&self) -> Request {
        self.request_of(Some("claude-sonnet-4-5"), Duration::from_secs(60))
    }

    pub(crate) fn run(&self, request: &Request) -> Ran {
        self.run_until(request, &Stop::new())
    }

    pub(crate) fn run_until(&self, request: &Request, stop: &Stop) -> Ran {
        self.attempt(&self.claude, &self.model, request, stop)
    }
}
