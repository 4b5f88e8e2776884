//! The upstreams everyone uses, and what is known of them.

use tidegate_name::Folding;

use crate::config::UpstreamConfig;

/// Hosts that are upstreams without being configured.
const HOSTS: [&str; 18] = [
    "github.com",
    "api.github.com",
    "raw.githubusercontent.com",
    "objects.githubusercontent.com",
    "codeload.githubusercontent.com",
    "release-assets.githubusercontent.com",
    "gitlab.com",
    "registry.gitlab.com",
    "bitbucket.org",
    "codeberg.org",
    "dev.azure.com",
    "docker.io",
    "ghcr.io",
    "quay.io",
    "gcr.io",
    "registry.k8s.io",
    "public.ecr.aws",
    "mcr.microsoft.com",
];

/// The upstreams that are there when none are configured.
pub fn builtin() -> Vec<UpstreamConfig> {
    HOSTS
        .iter()
        .map(|host| {
            let mut config = UpstreamConfig::new(*host);
            if *host == "docker.io" {
                // Its registry isn't at its name.
                config.url = Some("https://registry-1.docker.io".to_owned());
            }
            config
        })
        .collect()
}

/// Which spellings of a repository a well-known host takes for one.
pub(crate) fn folding(host: &str) -> Folding {
    match host.to_ascii_lowercase().as_str() {
        "github.com" | "gitlab.com" | "bitbucket.org" | "codeberg.org" => {
            Folding { ignore_case: true, git_suffix: true }
        }
        "dev.azure.com" => Folding { ignore_case: true, git_suffix: false },
        _ => Folding::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_has_no_problem() {
        for config in builtin() {
            assert_eq!(config.problems(), [], "{}", config.host);
        }
    }
}
