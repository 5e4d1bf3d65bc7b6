package protocol

import "encoding/json"

// A TaskStatus is the state of a task.
type TaskStatus string

const (
	TaskWorking       TaskStatus = "working"
	TaskInputRequired TaskStatus = "input_required" // the server waits for answers
	TaskCompleted     TaskStatus = "completed"
	TaskFailed        TaskStatus = "failed"
	TaskCancelled     TaskStatus = "cancelled"
)

// Ended reports whether the task has ended. Its status then no longer changes.
func (s TaskStatus) Ended() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCancelled
}

// A Task is a request that outlives its connection, in the tasks extension of
// 2026-07-28 (io.modelcontextprotocol/tasks). The tasks of 2025-11-25 are
// LegacyTask.
type Task struct {
	TaskID         string     `json:"taskId"`
	Status         TaskStatus `json:"status"`
	StatusMessage  string     `json:"statusMessage,omitzero"`
	CreatedAt      string     `json:"createdAt"`     // ISO 8601
	LastUpdatedAt  string     `json:"lastUpdatedAt"` // ISO 8601
	TTLMs          *int64     `json:"ttlMs"`         // milliseconds from creation; nil: unlimited
	PollIntervalMs *int64     `json:"pollIntervalMs,omitzero"`
}

// CreateTaskResult says that a call became a task. Its result type is
// ResultTask.
type CreateTaskResult struct {
	Result
	Task
}

// Stamp implements ModernResult.
func (r *CreateTaskResult) Stamp(serverInfo json.RawMessage) {
	if r.ResultType == "" {
		r.ResultType = ResultTask
	}
	r.Result.Stamp(serverInfo)
}

// A DetailedTask is a task with its questions, its result or its error.
type DetailedTask struct {
	Task
	InputRequests InputRequests   `json:"inputRequests,omitzero"` // while TaskInputRequired
	FinalResult   json.RawMessage `json:"result,omitzero"`        // of TaskCompleted: the result of the call
	Error         *TaskError      `json:"error,omitzero"`         // of TaskFailed
}

// A TaskError is the JSON-RPC error with which a task failed.
type TaskError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitzero"`
}

// GetTaskParams asks for the state of a task, in both kinds of tasks.
type GetTaskParams struct {
	RequestParams
	TaskID string `json:"taskId"`
}

// GetTaskResult is the state of a task.
type GetTaskResult struct {
	Result
	DetailedTask
}

// UpdateTaskParams answers questions of a task. The result is an EmptyResult.
type UpdateTaskParams struct {
	RequestParams
	TaskID         string         `json:"taskId"`
	InputResponses InputResponses `json:"inputResponses"`
}

// CancelTaskParams asks to cancel a task, in both kinds of tasks. The result is
// an EmptyResult in the extension, and a LegacyTaskResult in 2025-11-25.
type CancelTaskParams struct {
	RequestParams
	TaskID string `json:"taskId"`
}

// TaskParams is a notification about a task.
type TaskParams struct {
	NotificationParams
	DetailedTask
}

// TaskMetadata asks a receiver of 2025-11-25 to turn a request into a task.
type TaskMetadata struct {
	TTL *int64 `json:"ttl,omitzero"` // milliseconds to keep the task; nil leaves it to the receiver
}

// RelatedTask is the value of MetaRelatedTask.
type RelatedTask struct {
	TaskID string `json:"taskId"`
}

// A LegacyTask is a task of 2025-11-25.
type LegacyTask struct {
	TaskID        string     `json:"taskId"`
	Status        TaskStatus `json:"status"`
	StatusMessage string     `json:"statusMessage,omitzero"`
	CreatedAt     string     `json:"createdAt"`     // ISO 8601
	LastUpdatedAt string     `json:"lastUpdatedAt"` // ISO 8601
	TTL           *int64     `json:"ttl"`           // milliseconds from creation; nil: unlimited
	PollInterval  *int64     `json:"pollInterval,omitzero"`
}

// LegacyCreateTaskResult says that a request of 2025-11-25 became a task.
type LegacyCreateTaskResult struct {
	Meta Meta       `json:"_meta,omitzero"`
	Task LegacyTask `json:"task"`
}

// LegacyTaskResult answers tasks/get and tasks/cancel of 2025-11-25.
type LegacyTaskResult struct {
	Meta Meta `json:"_meta,omitzero"`
	LegacyTask
}

// GetTaskResultParams waits for the end of a task of 2025-11-25. The result is
// that of the original request.
type GetTaskResultParams struct {
	RequestParams
	TaskID string `json:"taskId"`
}

// ListTasksParams asks for one page of tasks of 2025-11-25.
type ListTasksParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ListTasksResult is one page of tasks.
type ListTasksResult struct {
	Meta Meta `json:"_meta,omitzero"`
	// Tasks are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	Tasks      []*LegacyTask `json:"tasks" most:"MaxItems tasks on a page"`
	NextCursor *string       `json:"nextCursor,omitzero"` // nil on the last page
}

// TaskStatusParams is a notification about a task of 2025-11-25.
type TaskStatusParams struct {
	NotificationParams
	LegacyTask
}
