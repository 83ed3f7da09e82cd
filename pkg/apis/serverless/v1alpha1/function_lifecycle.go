/*
Copyright 2026 The Kiln Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package v1alpha1

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"knative.dev/pkg/apis"
)

const (
	// FunctionConditionReady is True when the current generation of the
	// Function serves. It is derived from the three conditions below.
	FunctionConditionReady = apis.ConditionReady
	// FunctionConditionConfigurationReady is True when the build context of the current
	// generation is written.
	FunctionConditionConfigurationReady apis.ConditionType = "ConfigurationReady"
	// FunctionConditionBuildReady is True when the image of the current
	// generation is in the registry.
	FunctionConditionBuildReady apis.ConditionType = "BuildReady"
	// FunctionConditionRunning is True when the image and the configuration of
	// the current generation serve.
	FunctionConditionRunning apis.ConditionType = "Running"
	// FunctionConditionSourceFollowed is True when the last poll of the Function's branch
	// succeeded. It exists only if branches are followed. Ready does not depend on it.
	FunctionConditionSourceFollowed apis.ConditionType = "SourceFollowed"
	// FunctionConditionContentFollowed is True when Kiln could read all Secrets and ConfigMaps
	// of the Function. It exists only if their changes cause a new revision. Ready does not
	// depend on it.
	FunctionConditionContentFollowed apis.ConditionType = "ContentFollowed"
)

// Reasons of the condition ConfigurationReady.
const (
	// ReasonConfigMapCreated (True): the build's ConfigMap was created.
	ReasonConfigMapCreated = "ConfigMapCreated"
	// ReasonConfigMapUpdated (True): the build's ConfigMap holds an edited Function.
	ReasonConfigMapUpdated = "ConfigMapUpdated"
	// ReasonInvalidSpec (False): the spec is invalid; the message names the field.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonRuntimeUnknown (False): spec.runtime is not in config-runtimes.
	ReasonRuntimeUnknown = "RuntimeUnknown"
	// ReasonRegistryNotConfigured (False): config-registry names no registry to
	// push images to.
	ReasonRegistryNotConfigured = "RegistryNotConfigured"
	// ReasonConfigMapFailed (False): the build's ConfigMap could not be written.
	ReasonConfigMapFailed = "ConfigMapFailed"
)

// Reasons of the condition BuildReady.
const (
	// ReasonTaskRunSucceeded (True): the image was built and pushed.
	ReasonTaskRunSucceeded = "TaskRunSucceeded"
	// ReasonJobFinished (True): the image was built and pushed.
	ReasonJobFinished = "JobFinished"
	// ReasonImageReused (True): the registry had the image of these inputs; no build ran.
	ReasonImageReused = "ImageReused"
	// ReasonWaitingForConfiguration (Unknown): ConfigurationReady is not True.
	ReasonWaitingForConfiguration = "WaitingForConfiguration"
	// ReasonCheckingRegistry (Unknown): Kiln looks up the image in the registry. The build
	// starts if the registry does not hold it or does not answer.
	ReasonCheckingRegistry = "CheckingRegistry"
	// ReasonBuildQueued (Unknown): all build slots of config-build are in use. The message
	// has the place in the queue, and reports whether other builds hold the namespace's slots
	// because their pods do not start.
	ReasonBuildQueued = "BuildQueued"
	// ReasonTaskRunsDeleted (Unknown): earlier builds of the Function are being
	// deleted; the next starts when they are gone.
	ReasonTaskRunsDeleted = "TaskRunsDeleted"
	// ReasonTaskRunCreated (Unknown): the build's TaskRun was created.
	ReasonTaskRunCreated = "TaskRunCreated"
	// ReasonTaskRunRunning (Unknown): the build runs.
	ReasonTaskRunRunning = "TaskRunRunning"
	// ReasonTaskRunNotCreated (Unknown): the build's TaskRun could not be created, and Kiln
	// retries; the message says why.
	ReasonTaskRunNotCreated = "TaskRunNotCreated"
	// ReasonJobsDeleted (Unknown): earlier builds of the Function are being deleted; the
	// next starts when they are gone.
	ReasonJobsDeleted = "JobsDeleted"
	// ReasonJobCreated (Unknown): the build's Job was created.
	ReasonJobCreated = "JobCreated"
	// ReasonJobRunning (Unknown): the build runs.
	ReasonJobRunning = "JobRunning"
	// ReasonJobNotCreated (Unknown): the build's Job could not be created, and Kiln
	// retries; the message says why.
	ReasonJobNotCreated = "JobNotCreated"
	// ReasonBuildRetrying (Unknown): the build failed for a reason outside the Function;
	// the message has the time of the next attempt.
	ReasonBuildRetrying = "BuildRetrying"
	// ReasonTaskRunFailed (False): the build failed; the message says what to fix.
	ReasonTaskRunFailed = "TaskRunFailed"
	// ReasonJobFailed (False): the build failed; the message says what to fix.
	ReasonJobFailed = "JobFailed"
	// ReasonQuotaExceeded (False): a ResourceQuota of the namespace does not allow the
	// build's pod. Tekton retries every minute.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonBuildTimeout (False): the build took longer than config-build allows.
	ReasonBuildTimeout = "BuildTimeout"
	// ReasonBuildOutOfMemory (False): the build exceeded its memory limit.
	ReasonBuildOutOfMemory = "BuildOutOfMemory"
	// ReasonBuildOutOfDisk (False): the build needed more disk space than it may use.
	ReasonBuildOutOfDisk = "BuildOutOfDisk"
	// ReasonBuildCancelled (False): somebody cancelled the build.
	ReasonBuildCancelled = "BuildCancelled"
	// ReasonImagePullFailed (False): an image that the build needs could not be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonRegistryUnauthorized (False): the registry refused the build's credentials.
	ReasonRegistryUnauthorized = "RegistryUnauthorized"
	// ReasonRegistryUnavailable (False): the registry to push to could not be reached, or
	// failed.
	ReasonRegistryUnavailable = "RegistryUnavailable"
	// ReasonRegistryFull (False): the registry has no room for the image.
	ReasonRegistryFull = "RegistryFull"
	// ReasonPackageRegistryUnavailable (False): the package registry could not be reached,
	// or failed.
	ReasonPackageRegistryUnavailable = "PackageRegistryUnavailable"
	// ReasonSourceUpdateFailed (False): the source could not be fetched, or is invalid.
	ReasonSourceUpdateFailed = "SourceUpdateFailed"
	// ReasonCredentialsFailed (False): the registry credentials could not be copied to the
	// namespace.
	ReasonCredentialsFailed = "CredentialsFailed"
	// ReasonBuilderUnavailable (False): the cluster does not have the API of the builder that
	// config-build names.
	ReasonBuilderUnavailable = "BuilderUnavailable"
	// ReasonPodEvicted (False): the build's pod was evicted from its node.
	ReasonPodEvicted = "PodEvicted"
	// ReasonPodDeleted (False): the build's pod was deleted, or lost with its node.
	ReasonPodDeleted = "PodDeleted"
)

// Reasons of the condition Running.
const (
	// ReasonServiceReady (True): the service serves the current generation.
	ReasonServiceReady = "ServiceReady"
	// ReasonWaitingForBuild (Unknown): BuildReady is not True. A revision of an earlier
	// generation keeps serving.
	ReasonWaitingForBuild = "WaitingForBuild"
	// ReasonServiceCreated (Unknown): the service was created.
	ReasonServiceCreated = "ServiceCreated"
	// ReasonServiceUpdated (Unknown): the service was updated.
	ReasonServiceUpdated = "ServiceUpdated"
	// ReasonServiceWaiting (Unknown): the service is not ready yet.
	ReasonServiceWaiting = "ServiceWaiting"
	// ReasonMinimumReplicasUnavailable (Unknown): too few pods of the service run; the
	// message has their number, and the cause.
	ReasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable"
	// ReasonRevisionMissing (False): spec.traffic names a revision that does not exist, or
	// that uses the registry credentials; the previous traffic stays.
	ReasonRevisionMissing = "RevisionMissing"
	// ReasonServiceFailed (False): the service reports the failure in the message.
	ReasonServiceFailed = "ServiceFailed"
	// ReasonDeploymentReady (True): the Deployment serves the current generation.
	ReasonDeploymentReady = "DeploymentReady"
	// ReasonDeploymentCreated (Unknown): the Deployment was created.
	ReasonDeploymentCreated = "DeploymentCreated"
	// ReasonDeploymentUpdated (Unknown): the Deployment was updated.
	ReasonDeploymentUpdated = "DeploymentUpdated"
	// ReasonDeploymentWaiting (Unknown): the Deployment replaces its pods.
	ReasonDeploymentWaiting = "DeploymentWaiting"
	// ReasonDeploymentFailed (False): the Deployment cannot be written, or its newest pods do
	// not become ready. The pods of the last revision keep serving.
	ReasonDeploymentFailed = "DeploymentFailed"
	// ReasonServingUnavailable (False): the cluster does not have the API of what serves the
	// Function, or of what config-functions names for new ones.
	ReasonServingUnavailable = "ServingUnavailable"
	// ReasonTrafficUnsupported (False): a Deployment can only serve one revision at a time;
	// the previous one stays.
	ReasonTrafficUnsupported = "TrafficUnsupported"
	// ReasonVisibilityUnsupported (False): config-functions has no domain for public
	// Functions; the cluster-local address stays.
	ReasonVisibilityUnsupported = "VisibilityUnsupported"
	// ReasonReplicasUnsupported (False): Knative scales the Function, so spec.replicas has no
	// effect; the last revision stays.
	ReasonReplicasUnsupported = "ReplicasUnsupported"
)

// Reasons of the condition SourceFollowed.
const (
	// ReasonSourceUpdated (True): the branch is at the commit in the message.
	ReasonSourceUpdated = "SourceUpdated"
	// ReasonSourceNotFollowed (False): the poll of the branch failed. The message has the
	// error.
	ReasonSourceNotFollowed = "SourceUpdateFailed"
)

// Reasons of the condition ContentFollowed.
const (
	// ReasonContentRead (True): Kiln could read the Secrets and ConfigMaps in the message.
	ReasonContentRead = "ContentRead"
	// ReasonContentNotRead (False): a Secret or ConfigMap could not be read. The message says
	// why.
	ReasonContentNotRead = "ContentNotRead"
)

// ReasonNotOwned (False, any condition): an object of a required name belongs to somebody
// else.
const ReasonNotOwned = "NotOwned"

// ReasonWaitingForDeletion (Unknown, any condition): an object of a required name is being
// deleted, or will be with its deleted Function.
const ReasonWaitingForDeletion = "WaitingForDeletion"

var functionConditionSet = apis.NewLivingConditionSet(
	FunctionConditionConfigurationReady,
	FunctionConditionBuildReady,
	FunctionConditionRunning,
)

// GetConditionSet implements duckv1.KRShaped.
func (*Function) GetConditionSet() apis.ConditionSet {
	return functionConditionSet
}

// IsReady returns true when the current generation of the Function serves.
func (fn *Function) IsReady() bool {
	return fn.Generation == fn.Status.ObservedGeneration &&
		fn.Status.GetCondition(FunctionConditionReady).IsTrue()
}

// IsFailed returns true when the current generation of the Function has failed.
func (fn *Function) IsFailed() bool {
	return fn.Generation == fn.Status.ObservedGeneration &&
		fn.Status.GetCondition(FunctionConditionReady).IsFalse()
}

// Ready takes the reason of the condition that was marked last. So each step first marks
// the conditions that wait for it, and then its own.

// InitializeConditions sets the conditions that are missing to Unknown.
func (fs *FunctionStatus) InitializeConditions() {
	functionConditionSet.Manage(fs).InitializeConditions()
}

// ResetConditions sets all conditions to Unknown, so a new generation keeps no True or
// False of an earlier one. It removes SourceFollowed and ContentFollowed.
func (fs *FunctionStatus) ResetConditions() {
	fs.ClearSourceFollowed()
	fs.ClearContentFollowed()
	fs.MarkConfigurationUnknown("", "")
}

// MarkConfigurationReady reports that the build context is written.
func (fs *FunctionStatus) MarkConfigurationReady(reason, messageFormat string, messageA ...any) {
	functionConditionSet.Manage(fs).MarkTrueWithReason(FunctionConditionConfigurationReady, reason, messageFormat, messageA...)
	if fs.GetCondition(FunctionConditionBuildReady).GetReason() == ReasonWaitingForConfiguration {
		functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionBuildReady, "", "The build is about to start.")
	}
}

// MarkConfigurationUnknown reports what the configuration waits for. Build and service wait
// for it.
func (fs *FunctionStatus) MarkConfigurationUnknown(reason, messageFormat string, messageA ...any) {
	fs.markWaitingForConfiguration()
	functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionConfigurationReady, reason, messageFormat, messageA...)
}

// MarkConfigurationFailed reports why the Function cannot be configured. Build and service
// wait for it.
func (fs *FunctionStatus) MarkConfigurationFailed(reason, messageFormat string, messageA ...any) {
	fs.markWaitingForConfiguration()
	functionConditionSet.Manage(fs).MarkFalse(FunctionConditionConfigurationReady, reason, messageFormat, messageA...)
}

func (fs *FunctionStatus) markWaitingForConfiguration() {
	fs.markWaitingForBuild()
	functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionBuildReady, ReasonWaitingForConfiguration,
		"The build waits for ConfigurationReady.")
}

// MarkBuildReady reports that the image of the current generation is available.
func (fs *FunctionStatus) MarkBuildReady(reason, messageFormat string, messageA ...any) {
	functionConditionSet.Manage(fs).MarkTrueWithReason(FunctionConditionBuildReady, reason, messageFormat, messageA...)
	if fs.GetCondition(FunctionConditionRunning).GetReason() == ReasonWaitingForBuild {
		functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionRunning, "", "The service is about to be updated.")
	}
}

// MarkBuildUnknown reports the state of an unfinished build. The service waits for it.
func (fs *FunctionStatus) MarkBuildUnknown(reason, messageFormat string, messageA ...any) {
	fs.markWaitingForBuild()
	functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionBuildReady, reason, messageFormat, messageA...)
}

// MarkBuildFailed reports why the image could not be built. The service waits for it.
func (fs *FunctionStatus) MarkBuildFailed(reason, messageFormat string, messageA ...any) {
	fs.markWaitingForBuild()
	functionConditionSet.Manage(fs).MarkFalse(FunctionConditionBuildReady, reason, messageFormat, messageA...)
}

func (fs *FunctionStatus) markWaitingForBuild() {
	message := "The service waits for BuildReady."
	if serving := fs.describeServing("revision"); serving != "" {
		message = "The service waits for BuildReady; " + serving + "."
	}
	functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionRunning, ReasonWaitingForBuild, "%s", message)
}

// MarkRunning reports that the current generation serves.
func (fs *FunctionStatus) MarkRunning() {
	functionConditionSet.Manage(fs).MarkTrueWithReason(FunctionConditionRunning, ReasonServiceReady,
		"%s.", fs.describeServing("Revision"))
}

// describeServing returns a sentence that names the revisions that get requests, or "". It
// begins with the noun.
func (fs *FunctionStatus) describeServing(noun string) string {
	shares := map[string]int64{}
	var revisions []string
	for _, target := range fs.Traffic {
		if target.Percent == nil || *target.Percent == 0 {
			continue
		}
		if shares[target.RevisionName] == 0 {
			revisions = append(revisions, target.RevisionName)
		}
		shares[target.RevisionName] += *target.Percent
	}
	switch {
	case len(revisions) == 1:
		return noun + " " + revisions[0] + " serves"
	case len(revisions) == 0 && fs.LatestReadyRevisionName != "":
		return noun + " " + fs.LatestReadyRevisionName + " serves"
	case len(revisions) == 0:
		return ""
	}
	for i, name := range revisions {
		revisions[i] = fmt.Sprintf("%s (%d%%)", name, shares[name])
	}
	return noun + "s " + strings.Join(revisions, ", ") + " serve"
}

// IsDeployed reports whether a Service or a Deployment was created for the Function.
func (fs *FunctionStatus) IsDeployed() bool {
	return fs.TemplateHash != "" || fs.LatestCreatedRevisionName != ""
}

// MarkRunningWithReason reports that the current generation serves, and how.
func (fs *FunctionStatus) MarkRunningWithReason(reason, messageFormat string, messageA ...any) {
	functionConditionSet.Manage(fs).MarkTrueWithReason(FunctionConditionRunning, reason, messageFormat, messageA...)
}

// MarkRunningUnknown reports the state of a service that is not ready.
func (fs *FunctionStatus) MarkRunningUnknown(reason, messageFormat string, messageA ...any) {
	functionConditionSet.Manage(fs).MarkUnknown(FunctionConditionRunning, reason, messageFormat, messageA...)
}

// MarkRunningFailed reports why the current generation cannot serve.
func (fs *FunctionStatus) MarkRunningFailed(reason, messageFormat string, messageA ...any) {
	functionConditionSet.Manage(fs).MarkFalse(FunctionConditionRunning, reason, messageFormat, messageA...)
}

// MarkSourceFollowed reports the commit of the Function's branch.
func (fs *FunctionStatus) MarkSourceFollowed(messageFormat string, messageA ...any) {
	fs.setFollowed(FunctionConditionSourceFollowed, corev1.ConditionTrue, ReasonSourceUpdated, fmt.Sprintf(messageFormat, messageA...))
}

// MarkSourceNotFollowed reports why the branch cannot be polled.
func (fs *FunctionStatus) MarkSourceNotFollowed(messageFormat string, messageA ...any) {
	fs.setFollowed(FunctionConditionSourceFollowed, corev1.ConditionFalse, ReasonSourceNotFollowed, fmt.Sprintf(messageFormat, messageA...))
}

// MarkContentFollowed reports which Secrets and ConfigMaps Kiln has read.
func (fs *FunctionStatus) MarkContentFollowed(messageFormat string, messageA ...any) {
	fs.setFollowed(FunctionConditionContentFollowed, corev1.ConditionTrue, ReasonContentRead, fmt.Sprintf(messageFormat, messageA...))
}

// MarkContentNotFollowed reports why Kiln cannot read a Secret or a ConfigMap.
func (fs *FunctionStatus) MarkContentNotFollowed(messageFormat string, messageA ...any) {
	fs.setFollowed(FunctionConditionContentFollowed, corev1.ConditionFalse, ReasonContentNotRead, fmt.Sprintf(messageFormat, messageA...))
}

// ClearContentFollowed removes the condition ContentFollowed. A change of a Secret or a
// ConfigMap causes nothing.
func (fs *FunctionStatus) ClearContentFollowed() {
	_ = functionConditionSet.Manage(fs).ClearCondition(FunctionConditionContentFollowed)
}

// setFollowed does not change Ready.
func (fs *FunctionStatus) setFollowed(condition apis.ConditionType, status corev1.ConditionStatus, reason, message string) {
	functionConditionSet.Manage(fs).SetCondition(apis.Condition{
		Type: condition, Status: status, Severity: apis.ConditionSeverityInfo, Reason: reason, Message: message,
	})
}

// ClearSourceFollowed removes the condition SourceFollowed. The Function has no branch, or
// branches are not followed.
func (fs *FunctionStatus) ClearSourceFollowed() {
	// Only conditions that Ready depends on cannot be cleared.
	_ = functionConditionSet.Manage(fs).ClearCondition(FunctionConditionSourceFollowed)
}

// UpdatePhase derives the phase from the conditions.
func (fs *FunctionStatus) UpdatePhase() {
	fs.Phase = phaseOf(
		fs.GetCondition(FunctionConditionConfigurationReady),
		fs.GetCondition(FunctionConditionBuildReady),
		fs.GetCondition(FunctionConditionRunning),
	)
}

// phaseOf returns the first step that is not done, unless a step has failed. Missing
// conditions count as Unknown.
func phaseOf(configuration, build, running *apis.Condition) FunctionPhase {
	switch {
	case configuration.IsFalse(), build.IsFalse(), running.IsFalse():
		return FunctionFailed
	case !configuration.IsTrue():
		return FunctionInitializing
	case !build.IsTrue():
		return FunctionBuilding
	case !running.IsTrue():
		return FunctionDeploying
	default:
		return FunctionRunning
	}
}
