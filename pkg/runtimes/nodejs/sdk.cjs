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

// The module "sdk", which Kyma has for functions of the style main(req, res). It lies
// where Node.js looks last, so a package of that name among the function's own wins.

'use strict';

// The wrapper is the process' main module.
const { sdk } = require.main.exports;

// Node.js finds the names for import in these lines.
exports.emitCloudEvent = sdk.emitCloudEvent;
exports.getBodySizeLimit = sdk.getBodySizeLimit;
exports.getCloudEvent = sdk.getCloudEvent;
exports.getFunctionName = sdk.getFunctionName;
exports.getNamespace = sdk.getNamespace;
exports.getRuntime = sdk.getRuntime;
exports.getTimeout = sdk.getTimeout;
exports.getTracer = sdk.getTracer;
