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

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// WriteJSON writes a result as JSON to name.json in the folder, which it creates.
func WriteJSON(folder, name string, found any) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	data, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return fmt.Errorf("failed to encode report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".json"), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("failed to write report: %w", err)
	}
	return nil
}
