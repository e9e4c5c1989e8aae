//! Where credentials are, and looking at a policy's paths.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::confine::can_be_layered;
use super::plan::{Kind, Place, Places};
use super::readable::parts_without;
use super::{Policy, Refusal, Setting, State, shared};

/// Under the home directory: what lets a program act as this person elsewhere.
const IN_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".oci",
    ".boto",
    ".s3cfg",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/doctl",
    ".config/heroku",
    ".config/hcloud",
    ".config/rclone",
    ".config/op",
    ".config/sops",
    ".config/containers/auth.json",
    ".git-credentials",
    ".config/git/credentials",
    ".cache/git/credential",
    ".git-credential-cache",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".config/pypoetry/auth.toml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".local/share/gem/credentials",
    ".bundle/config",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".config/hf",
    ".cache/huggingface/token",
    ".huggingface/token",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".Xauthority",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
];

/// Variables that put such a thing elsewhere.
const NAMED: &[&str] = &[
    "GNUPGHOME",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "AZURE_CONFIG_DIR",
    "KUBECONFIG",
    "DOCKER_CONFIG",
    "REGISTRY_AUTH_FILE",
    "GH_CONFIG_DIR",
    "GLAB_CONFIG_DIR",
    "NETRC",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_userconfig",
    "PIP_CONFIG_FILE",
    "HF_TOKEN_PATH",
    "PGPASSFILE",
    "PASSWORD_STORE_DIR",
    "XAUTHORITY",
    "SSH_AUTH_SOCK",
    "TF_CLI_CONFIG_FILE",
];

/// What is below the configuration directory when `XDG_CONFIG_HOME` moves it.
const IN_CONFIG: &[&str] = &[
    "gcloud",
    "gh",
    "glab-cli",
    "git/credentials",
    "pip/pip.conf",
    "rclone",
    "op",
    "containers/auth.json",
];

/// The machine's own.
const OF_MACHINE: &[&str] = &["/etc/shadow", "/etc/gshadow", "/etc/krb5.keytab"];

/// Every place of credentials, whether it is there or not. `variable` reads our environment.
pub fn credentials(
    home: Option<&Path>,
    variable: impl Fn(&str) -> Option<PathBuf>,
) -> Vec<PathBuf> {
    let under = |root: PathBuf, names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|name| root.join(name)).collect()
    };
    let mut all = Vec::new();
    all.extend(
        home.into_iter()
            .flat_map(|it| under(it.to_owned(), IN_HOME)),
    );
    all.extend(
        variable("XDG_CONFIG_HOME")
            .into_iter()
            .flat_map(|it| under(it, IN_CONFIG)),
    );
    let in_cargo = ["credentials", "credentials.toml"];
    all.extend(
        variable("CARGO_HOME")
            .into_iter()
            .flat_map(|it| under(it, &in_cargo)),
    );
    for name in NAMED {
        // `KUBECONFIG` may be a list.
        let value = variable(name).unwrap_or_default();
        all.extend(std::env::split_paths(&value));
    }
    all.extend(OF_MACHINE.iter().map(PathBuf::from));
    all.retain(|it| it.is_absolute());
    all
}

/// Under the home directory: where build tools keep what they fetched and built, to use it again
/// in any project.
const CACHES: &[&str] = &[
    ".cargo/registry",
    ".cargo/git",
    ".rustup",
    ".cache",
    ".npm",
    ".yarn",
    ".bun/install/cache",
    ".local/share/pnpm",
    ".local/share/uv",
    ".deno",
    "go/pkg",
    ".m2/repository",
    ".gradle",
    ".ivy2",
    ".sbt",
    ".nuget/packages",
    ".dotnet",
    ".composer",
    ".bundle",
    ".gem",
    ".local/share/gem",
    ".hex",
    ".mix",
    ".pub-cache",
    ".conan2",
    ".stack",
    ".cabal",
    ".opam",
];

/// Every such place, whether it is there or not.
pub fn caches(home: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for (name, inside) in [
        ("XDG_CACHE_HOME", &[""][..]),
        ("CARGO_HOME", &["registry", "git"]),
        ("RUSTUP_HOME", &[""]),
        ("GOPATH", &["pkg"]),
        ("GOCACHE", &[""]),
    ] {
        let root = variable(name).filter(|it| it.is_absolute());
        all.extend(
            root.iter()
                .flat_map(|it| inside.iter().map(move |name| it.join(name))),
        );
    }
    all.extend(
        home.into_iter()
            .flat_map(|it| CACHES.iter().map(move |name| it.join(name))),
    );
    all
}

/// Sockets of services that act with rights of their own for whoever may write to them, which
/// would be a way around every wall.
pub fn services(user: u32, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/podman",
        "/run/containerd",
        "/run/crio",
        "/run/libvirt",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/snapd.socket",
        "/run/snapd-snap.socket",
        "/var/lib/incus/unix.socket",
        "/var/snap/lxd/common/lxd/unix.socket",
    ]
    .map(PathBuf::from)
    .to_vec();
    all.push(PathBuf::from(format!("/run/user/{user}")));
    all.extend(variable("XDG_RUNTIME_DIR").filter(|it| it.is_absolute()));
    all
}

/// Mounts in all; more caches are read-only.
const MOST_LAYERS: usize = 64;

/// Looks at the paths of a policy, and makes what must be there.
pub(super) fn look(policy: &Policy) -> Result<Places, Refusal> {
    let made = |name: &str| {
        let path = policy.scratch.join(name);
        std::fs::create_dir_all(&path)
            .and_then(|()| path.canonicalize())
            .map_err(|source| Refusal::Io { path, source })
    };
    let tmp = made("tmp")?;
    let empty_dir = made("nothing")?;
    let shared_path = shared(&policy.scratch);
    std::fs::create_dir_all(&shared_path).map_err(|source| Refusal::Io {
        path: shared_path.clone(),
        source,
    })?;
    let empty_file = empty_file(&policy.scratch.join("nothing.txt"))?;
    // For whoever relies on it, as in the directory it stands in for.
    let _ = std::fs::set_permissions(&tmp, std::fs::Permissions::from_mode(0o1777));
    make_state(&policy.state)?;
    let mut writable = found(&policy.writable)?;
    for more in [&policy.state.dirs[..], &[shared_path]] {
        writable.extend(found(more)?);
    }
    let settings = policy.state.settings.iter().map(|it| it.path().to_owned());
    let read_only: Vec<PathBuf> = policy.read_only.iter().cloned().chain(settings).collect();
    let needed = found(&policy.state.needs)?;
    let mut hidden = found(&policy.hidden)?;
    hidden.retain(|it| !needed.contains(it));
    let services = found(&policy.services)?;
    let read_only = found(&read_only)?;
    let machine_tmp = found(&[PathBuf::from("/tmp"), PathBuf::from("/var/tmp")])?;
    let said: [&[Place]; 4] = [&writable, &read_only, &hidden, &services];
    let layered = layered(policy, &said, &machine_tmp)?;
    Ok(Places {
        writable,
        read_only,
        hidden,
        services,
        layered,
        layers: policy.layers.as_ref().and_then(|it| it.canonicalize().ok()),
        tmp,
        machine_tmp: machine_tmp.into_iter().map(|it| it.path).collect(),
        home: std::env::home_dir().and_then(|it| it.canonicalize().ok()),
        empty_dir,
        empty_file,
        network: policy.network,
        root: rustix::process::geteuid().is_root(),
    })
}

/// An agent makes its directories when they are absent; in a sandbox it could not. Its settings
/// are made too, empty, so that there is something to keep it from.
fn make_state(state: &State) -> Result<(), Refusal> {
    let private = |path: &Path| {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)
    };
    let io = |path: &Path, source| Refusal::Io {
        path: path.to_owned(),
        source,
    };
    for dir in &state.dirs {
        private(dir).map_err(|error| io(dir, error))?;
    }
    for setting in &state.settings {
        // Also a link that leads nowhere is something of the user's.
        if setting.path().symlink_metadata().is_ok() {
            continue;
        }
        let made = match setting {
            Setting::Dir(path) => private(path),
            Setting::File(path, content) => std::fs::write(path, content),
        };
        made.map_err(|error| io(setting.path(), error))?;
    }
    Ok(())
}

/// A cache is layered at most once, and only where nothing else is said: over a hidden file it
/// would show it again. Beside such a file its other directories are layered.
fn layered(
    policy: &Policy,
    others: &[&[Place]],
    machine_tmp: &[Place],
) -> Result<Vec<(PathBuf, PathBuf)>, Refusal> {
    let Some(layers) = &policy.layers else {
        return Ok(Vec::new());
    };
    let others: Vec<PathBuf> = others
        .iter()
        .copied()
        .flatten()
        .map(|it| it.path.clone())
        .collect();
    let apart = |path: &Path| {
        let tmp = machine_tmp.iter().any(|it| path.starts_with(&it.path));
        !tmp && !path.starts_with("/dev") && !others.iter().any(|it| path.starts_with(it))
    };
    let mut all: Vec<(PathBuf, PathBuf)> = Vec::new();
    let caches = found(&policy.layered)?.into_iter();
    for path in caches.flat_map(|it| parts_without(&it.path, &others)) {
        let inside = |(of, _): &(PathBuf, PathBuf)| path.starts_with(of);
        let fits = path.is_dir() && apart(&path) && can_be_layered(&path);
        if !fits || all.iter().any(inside) || all.len() == MOST_LAYERS {
            continue;
        }
        let name = path
            .to_string_lossy()
            .replace(|it: char| !it.is_alphanumeric(), "-");
        let layer = layers.join(name.trim_start_matches('-'));
        for part in ["written", "work"] {
            let path = layer.join(part);
            std::fs::create_dir_all(&path).map_err(|source| Refusal::Io { path, source })?;
        }
        let io = |source| Refusal::Io {
            path: layer.clone(),
            source,
        };
        let layer = layer.canonicalize().map_err(io)?;
        all.push((path, layer));
    }
    // A cache inside another that came later.
    let outer: Vec<PathBuf> = all.iter().map(|(of, _)| of.clone()).collect();
    all.retain(|(of, _)| !outer.iter().any(|it| of.starts_with(it) && it != of));
    match can_be_layered(layers) {
        true => Ok(all),
        false => Ok(Vec::new()),
    }
}

fn empty_file(path: &Path) -> Result<PathBuf, Refusal> {
    let io = |source| Refusal::Io {
        path: path.to_owned(),
        source,
    };
    match std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
    {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
        Ok(_) | Err(_) => {}
    }
    path.canonicalize().map_err(io)
}

/// Those that are there, by their real names, each once. A path that cannot be looked at is one
/// the program cannot reach either, as it has no more rights than we.
fn found(paths: &[PathBuf]) -> Result<Vec<Place>, Refusal> {
    let mut places: Vec<Place> = Vec::new();
    for path in paths {
        let Ok(real) = path.canonicalize() else {
            continue;
        };
        let kind = match std::fs::metadata(&real) {
            Ok(meta) if meta.is_dir() => Kind::Dir,
            Ok(_) => Kind::File,
            Err(source) => {
                let path = real;
                return Err(Refusal::Io { path, source });
            }
        };
        if !places.iter().any(|it| it.path == real) {
            places.push(Place { path: real, kind });
        }
    }
    Ok(places)
}
