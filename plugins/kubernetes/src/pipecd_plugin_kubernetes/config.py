# SPDX-License-Identifier: Apache-2.0
"""What people write for these plugins: in the piped file and in application files.

The options of single stages are in `stage_config`.
"""

from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pipecd_sdk import (
    ApplicationConfig,
    Duration,
    PluginConfig,
    Report,
    Secret,
    TargetConfig,
    field,
)
from pipecd_sdk.constraints import AnyGiven, InRange, NotTogether

VARIANT_LABEL = "pipecd.dev/variant"


class ChartRepository(PluginConfig):
    """A repository of Helm charts."""

    moved: ClassVar = {
        "sshKeyFile": "set the key in spec.git of the piped file",
        "gitRemote": "name it in the application, as input.helmChart.gitRemote",
    }

    type: Literal["HTTP", "GIT"] = "HTTP"
    """`HTTP`; `GIT` is read, and needs nothing here."""
    name: str = ""
    """The name that applications call it by."""
    address: str = ""
    """Its URL."""
    username: str = ""
    """Who asks for the charts."""
    password: Secret = Secret("")
    """The password of that user."""
    insecure: bool = False
    """Accept any certificate of the server."""

    def check(self, report: Report) -> None:
        if self.type != "HTTP":
            return
        for key in ("name", "address"):
            if not report.is_broken(key) and not getattr(self, key):
                report.fault(key, message="must be given")


class ChartRegistry(PluginConfig):
    """A registry of Helm charts that are OCI artifacts."""

    address: str
    """The host, and its port if it has one."""
    type: Literal["OCI"] = "OCI"
    """`OCI`; there are no others."""
    username: str = ""
    """Who asks for the charts."""
    password: Secret = Secret("")
    """The password of that user."""


class KubernetesPluginConfig(PluginConfig):
    """The options of the plugin."""

    chart_repositories: tuple[ChartRepository, ...] = ()
    """Repositories of Helm charts."""
    chart_registries: tuple[ChartRegistry, ...] = ()
    """Registries of Helm charts."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that manifests may be fetched from while rendering: remote bases, charts and values.

    Those of the chart repositories and registries are allowed. A name that begins with `*.` means
    all names under it.
    """
    programs: dict[str, str] = field(default_factory=dict)
    """Paths of `helm` and `kustomize`, where the ones of this machine are to be used."""

    def check(self, report: Report) -> None:
        if report.is_broken("programs"):
            return
        for name, path in self.programs.items():
            if name not in {"helm", "kustomize", "kubectl"}:
                report.fault("programs", name, message="only helm and kustomize are run")
            elif not PurePosixPath(path).is_absolute():
                report.fault("programs", name, message=f"must be an absolute path: {path!r}")


class ResourceKind(TargetConfig):
    """A kind of resources."""

    api_version: str = ""
    """E.g. `apps/v1`; empty means any."""
    kind: str = ""
    """E.g. `Deployment`; empty means any."""


class AppStateInformer(TargetConfig):
    """Which resources of the cluster are watched for the live state."""

    namespace: str = ""
    """Watch only this namespace, and nothing that belongs to none."""
    include_resources: tuple[ResourceKind, ...] = ()
    """Kinds that are watched besides the usual ones."""
    exclude_resources: tuple[ResourceKind, ...] = ()
    """Kinds that are not watched."""


class KubernetesTarget(TargetConfig):
    """The options of a deploy target: a cluster, and how it is reached."""

    master_url: str = ""
    """The address of the API server, instead of that of the kubeconfig file."""
    kube_config_path: str = ""
    """The kubeconfig file; empty means the service account of the pod that piped runs in."""
    kube_context: str = ""
    """The context of the kubeconfig file; empty means its current one."""
    kubectl_version: str = ""
    """Read for compatibility; the API is spoken to directly."""
    app_state_informer: AppStateInformer = AppStateInformer()
    """Which resources are watched for the live state."""

    def check(self, report: Report) -> None:
        if report.is_broken("kubeContext") or report.is_broken("kubeConfigPath"):
            return
        if self.kube_context and not self.kube_config_path:
            report.fault("kubeContext", message="needs kubeConfigPath", hint="contexts are in it")


class HelmChart(ApplicationConfig):
    """Where a chart is: here, in a chart repository or registry, or in another git repository."""

    constraints: ClassVar = (
        AnyGiven(
            among=("path", "name"),
            message="no chart is named",
            hint="path, or repository with name and version",
        ),
        NotTogether(
            key="gitRemote",
            others=("repository",),
            message="cannot be given together with repository",
        ),
    )

    path: str = ""
    """The chart's folder, from the application's folder; with gitRemote from its root."""
    repository: str = ""
    """A chart repository of the piped file, or an address that begins with `oci://`."""
    name: str = ""
    """The chart's name in its repository."""
    version: str = ""
    """The chart's version in its repository."""
    git_remote: str = ""
    """Another git repository that has the chart."""
    ref: str = ""
    """The branch, tag or commit of that repository."""


class HelmOptions(ApplicationConfig):
    """What `helm template` is told."""

    release_name: str = ""
    """The release; empty means the application's name."""
    set_values: dict[str, str] = field(default_factory=dict)
    """Values by their keys."""
    value_files: tuple[str, ...] = ()
    """Files of values, within the application's folder, or URLs of allowed hosts."""
    set_files: dict[str, str] = field(default_factory=dict)
    """Values that are contents of files, by their keys."""
    api_versions: tuple[str, ...] = ()
    """Versions of APIs that the chart shall believe in."""
    kube_version: str = ""
    """The version of Kubernetes that the chart shall believe in."""


class TargetReference(ApplicationConfig):
    """Deploy targets, by name or by labels."""

    constraints: ClassVar = (
        AnyGiven(
            among=("name", "labels"),
            message="no deploy target is named",
            hint="give its name, or labels that it has",
        ),
    )

    name: str = ""
    """The name of a deploy target."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels; all deploy targets that have all of them are meant."""


class TargetInput(ApplicationConfig):
    """What some deploy targets get instead of what the others get."""

    target: TargetReference
    """Which deploy targets."""
    manifests: tuple[str, ...] = ()
    """The files with manifests, from the application's folder."""
    kubectl_version: str = ""
    """Read for compatibility; the API is spoken to directly."""
    kustomize_dir: str = ""
    """The folder with the kustomization, from the application's folder."""
    kustomize_version: str = ""
    """The version of kustomize."""
    kustomize_options: dict[str, str] = field(default_factory=dict)
    """Options of `kustomize build`, without their dashes."""


class Input(ApplicationConfig):
    """Where the manifests come from."""

    moved: ClassVar = {"autoRollback": "write spec.planner.autoRollback"}

    manifests: tuple[str, ...] = ()
    """The files with manifests; none named means all YAML and JSON files of the folder."""
    namespace: str = ""
    """The namespace of all manifests, whatever they say themselves."""
    auto_create_namespace: bool = False
    """Make namespaces that are not there yet."""
    kubectl_version: str = ""
    """Read for compatibility; the API is spoken to directly."""
    kustomize_dir: str = ""
    """The folder with the kustomization, from the application's folder; empty means that folder."""
    kustomize_version: str = ""
    """The version of kustomize."""
    kustomize_options: dict[str, str] = field(default_factory=dict)
    """Options of `kustomize build`, without their dashes."""
    helm_version: str = ""
    """The version of helm."""
    helm_chart: HelmChart | None = None
    """The chart to render, if the application is one."""
    helm_options: HelmOptions | None = None
    """How it is rendered."""
    multi_targets: tuple[TargetInput, ...] = ()
    """Only these deploy targets, each with what is different there."""

    def check(self, report: Report) -> None:
        if report.is_broken("helmChart") or report.is_broken("kustomizeOptions"):
            return
        if self.helm_chart is not None and self.kustomize_options:
            report.fault(
                "kustomizeOptions",
                message="cannot be given together with helmChart",
                hint="an application is rendered by helm or by kustomize",
            )


class QuickSync(ApplicationConfig):
    """The options of the sync of a deployment that has no pipeline."""

    add_variant_label_to_selector: bool = False
    """Add the label of the variant to the selectors of the workloads."""
    prune: bool = False
    """Remove what this application has in the cluster and no longer in git."""
    multi_targets: tuple[str, ...] = ()
    """Only these deploy targets."""


class ResourceReference(ApplicationConfig):
    """A manifest of the application."""

    kind: str = ""
    """Its kind."""
    name: str = ""
    """Its name; empty means the first of its kind."""


class WorkloadReference(ApplicationConfig):
    """Workloads of the application."""

    kind: str = "Deployment"
    """Their kind."""
    name: str = ""
    """The name of one; empty means all of the kind."""


class VariantLabel(ApplicationConfig):
    """The label by which variants of an application are told apart."""

    key: str = VARIANT_LABEL
    """Its key."""
    primary_value: str = "primary"
    """Its value on the primary."""
    canary_value: str = "canary"
    """Its value on the canary."""
    baseline_value: str = "baseline"
    """Its value on the baseline."""

    def check(self, report: Report) -> None:
        values = (self.primary_value, self.canary_value, self.baseline_value)
        if len(set(values)) < len(values):
            report.fault(message=f"the values must differ: {', '.join(values)}")


class IstioRouting(ApplicationConfig):
    """How Istio is told the weights."""

    editable_routes: tuple[str, ...] = ()
    """The names of the routes that may be changed; none named means all."""
    host: str = ""
    """The host whose destinations are the variants; empty means the name of the service."""
    virtual_service: ResourceReference = ResourceReference()
    """The VirtualService; empty means the first one."""

    def check(self, report: Report) -> None:
        if report.is_broken("virtualService"):
            return
        if self.virtual_service.kind not in {"", "VirtualService"}:
            report.fault(
                "virtualService",
                "kind",
                message=f"must be VirtualService: {self.virtual_service.kind!r}",
            )


class GatewayRouting(ApplicationConfig):
    """How the Gateway API is told the weights."""

    editable_rules: tuple[str, ...] = ()
    """The names of the rules that may be changed; none named means all."""
    primary_service: str = ""
    """The Service of the primary; empty means the one that `service` of the application names."""
    canary_service: str = ""
    """The Service of the canary; empty means that name with `-canary`."""
    baseline_service: str = ""
    """The Service of the baseline; empty means that name with `-baseline`."""
    http_route: ResourceReference = ResourceReference()
    """The HTTPRoute; empty means the first one."""

    def check(self, report: Report) -> None:
        if report.is_broken("httpRoute"):
            return
        if self.http_route.kind not in {"", "HTTPRoute"}:
            report.fault(
                "httpRoute", "kind", message=f"must be HTTPRoute: {self.http_route.kind!r}"
            )


class TrafficRouting(ApplicationConfig):
    """How traffic is split between variants."""

    method: Literal["podselector", "istio", "gateway", "smi"] = "podselector"
    """`podselector` moves all of it; `istio` and `gateway` (the Gateway API) split it by weight."""
    istio: IstioRouting = IstioRouting()
    """The options of `istio`."""
    gateway: GatewayRouting = GatewayRouting()
    """The options of `gateway`."""

    def check(self, report: Report) -> None:
        if not report.is_broken("method") and self.method == "smi":
            report.fault(
                "method",
                message="SMI is not supported",
                hint="podselector, istio or gateway",
            )


class Readiness(ApplicationConfig):
    """Whether a stage waits until what it has applied is ready."""

    constraints: ClassVar = (
        InRange(key="timeout", minimum=1, message="must be longer than 0s: {value}"),
    )

    wait: bool = True
    """Wait for the workloads of a rollout; without it a stage ends when they are applied."""
    timeout: Duration = Duration(minutes=10)
    """How long at most. A Deployment's `progressDeadlineSeconds` ends it earlier."""


class Deletion(ApplicationConfig):
    """Which deletions are permitted. Without these a stage that would do one fails before it."""

    allow_many: bool = False
    """Delete more than 5 objects, and more than 30 % of the application's, in one stage."""
    allow_namespaces: bool = False
    """Delete Namespaces and CustomResourceDefinitions, with everything that is in them."""


class KubernetesOptions(ApplicationConfig):
    """The options in an application file, under the plugin's name."""

    moved: ClassVar = {
        "resourceRoutes": "use kubernetes_multicluster, and input.multiTargets with manifests"
    }

    input: Input = Input()
    """Where the manifests come from."""
    quick_sync: QuickSync = QuickSync()
    """The options of the sync of a deployment that has no pipeline."""
    service: ResourceReference = ResourceReference()
    """The Service that traffic comes in by; empty means the first one."""
    workloads: tuple[WorkloadReference, ...] = ()
    """The workloads that have variants; none named means all Deployments."""
    variant_label: VariantLabel = VariantLabel()
    """The label by which variants are told apart."""
    traffic_routing: TrafficRouting = TrafficRouting()
    """How traffic is split between variants."""
    readiness: Readiness = Readiness()
    """Whether stages wait until what they have applied is ready."""
    deletion: Deletion = Deletion()
    """Which deletions are permitted."""
