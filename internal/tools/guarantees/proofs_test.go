package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A proof is a row of a page: a property, and the names of its tests, separated by spaces.
type proof struct{ area, what, tests string }

const proofsPreamble = `
## Tests

This table lists features that the tables of methods do not show, with their tests. Most tests of the server that need both
sides run over stdio and HTTP, in every revision that has the feature. Tests of transports, and tests with
[other SDKs](interop-features.md), are not listed here.

| Area | Side | What | Tests |
| --- | --- | --- | --- |
`

// TestProofsAreThere checks that the tests of both tables exist. TestFeaturesPageIsFresh and
// TestAttacksPageIsFresh compare the pages.
func TestProofsAreThere(t *testing.T) {
	files := filesOfTests(t)
	for _, p := range slices.Concat(clientProofs(), serverProofs(), attackProofs()) {
		names := strings.Fields(p.tests)
		if len(names) == 0 {
			t.Errorf("%s: %s: no test", p.area, p.what)
		}
		for _, name := range names {
			if len(files[name]) == 0 {
				t.Errorf("%s: %s: there is no %s", p.area, p.what, name)
			}
		}
	}
}

// TestAttacksPageIsFresh compares docs/attacks.md with its rows, and with what internal/tools/attacks has measured. With -update it rewrites
// the page.
func TestAttacksPageIsFresh(t *testing.T) {
	var page strings.Builder
	page.WriteString(attacksPreamble)
	files := filesOfTests(t)
	for _, p := range attackProofs() {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", cell(p.area), cell(p.what), linked(files, p.tests))
	}
	measured, err := os.ReadFile(filepath.Join("..", "attacks", "measured.md"))
	if err != nil {
		t.Fatal(err)
	}
	page.WriteString(attacksMeasured)
	page.Write(measured)
	checkPage(t, "docs/attacks.md", func(string) (string, error) { return page.String(), nil })
}

// writeProofs adds the table of tests to the page of features.
func writeProofs(t *testing.T, page *strings.Builder) {
	t.Helper()
	files := filesOfTests(t)
	page.WriteString(proofsPreamble)
	for side, proofs := range [][]proof{clientProofs(), serverProofs()} {
		for _, p := range proofs {
			fmt.Fprintf(page, "| %s | %s | %s | %s |\n", p.area, []string{"client", "server"}[side], cell(p.what), linked(files, p.tests))
		}
	}
}

func linked(files map[string][]string, tests string) string {
	var links []string
	for name := range strings.FieldsSeq(tests) {
		for _, file := range files[name] {
			links = append(links, fmt.Sprintf("[%s](../%s)", name, file))
		}
	}
	return strings.Join(links, "<br>")
}

// filesOfTests returns the files of the tests, benchmarks and examples of the tree, by name.
func filesOfTests(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	files := map[string][]string{}
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(tree, name)
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
			files[found[1]] = append(files[found[1]], name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func clientProofs() []proof {
	return []proof{
		{"Lifecycle", "find sessions by iterator and by name", "TestSessionsOfAClient TestSessionIsFoundByName"},
		{"Lifecycle", "wait for the end of a session, and learn why it ended", "TestWaitReturnsWhyASessionEnded"},
		{"Lifecycle", "server info, capabilities, instructions and revision", "TestServerReturnsNameAndInstructions TestEveryLegacyRevisionIsNegotiated TestOlderRevisionIsAccepted"},
		{"Lifecycle", "log level, subscriptions, listen and lists are restored after a reconnect", "TestLegacyServerIsRestored TestModernServerIsRestored TestOneListenForAllThatIsWanted"},
		{"Lifecycle", "one event for each time without a server", "TestEachGapIsReportedOnce TestGapsWhileTheProgramIsBusy TestLostComesBeforeWhatTheNextServerSays"},
		{"Tools", "list and iterator over all pages", "TestToolsRangesOverAllPages TestCursorsAreFollowed TestRepeatedCursorEndsThePaging TestPagingIsBounded"},
		{"Tools", "typed and raw calls; a plain value or map as arguments", "TestCallReadsResults TestTypedToolAnswers TestCallsWithArgumentsThatHoldNothing ExampleCall"},
		{"Tools", "structured content is checked against the output schema", "TestCallChecksTheOutputSchema"},
		{"Tools", "arguments are mirrored to Mcp-Param-*; tools with an invalid x-mcp-header are dropped", "TestMirroredArguments TestMirroredHeaders TestWhichAnnotationsAreValid"},
		{"Resources", "list, templates, read, subscribe, updated", "TestEveryList TestEveryMethod TestFeaturesOfOwnServer TestWatch"},
		{"Prompts, completion", "list, get, complete", "TestEveryMethod TestFeaturesOfOwnServer TestCompletionOfTheFirstRevision"},
		{"Roots", "handler, and list_changed", "TestLegacyQuestions TestRootsChanged"},
		{"Elicitation", "forms: defaults, validation against the schema, every kind of enum", "TestLegacyQuestions TestEveryKindOfField"},
		{"Elicitation", "URLs: shown in full, never fetched, opened only with consent", "TestLegacyQuestions TestPagesAreNeverFetched TestPagesAreShownWhole"},
		{"Sampling", "handler, also with tools", "TestLegacyQuestions TestCapabilitiesFollowFromHandlers"},
		{"Asking", "the same handlers answer both eras, in a bounded number of rounds", "TestLegacyQuestions TestQuestionsInAResultAreAnswered TestRoundsFailIfTheyCannotEnd TestRoundsOfParallelCalls TestManualInput"},
		{"Logging", "level and handler", "TestLogsGoToClientsThatWantThem TestEveryNotificationReachesTheProgram TestLegacyServerIsRestored"},
		{"2026-07-28", "after -32022, try another version, also if the server names ours", "TestServerThatRefusesItsOwnRevision TestRequestedRevisionIsUsedOrFails TestUnsupportedVersionIsRefused"},
		{"2026-07-28", "subscriptions/listen for all kinds", "TestOneListenForAllThatIsWanted TestModernServerGetsOneSubscription TestSubscriptionThatIsNotGranted TestSubscriptionThatEndsIsMadeAgain"},
		{"Legacy oddities", "batches are never sent, and are read in the revision that has them", "TestBatchesAreReadWhereTheRevisionHasThem TestBatchesBelongToOneRevision"},
		{"Errors, _meta, extensions", "errors.As finds *jsonrpc.Error; capability maps are open; every encoder keeps unknown members", "TestErrorsMatch TestCommonFailuresHaveNames TestCapabilitiesKeepWhatTheyDoNotKnow TestUnknownMembersSurviveAnyEncoder TestStandardEncoderAgrees"},
		{"Middleware", "for sending and receiving, also typed; the first is the outermost", "TestMiddleware TestMiddlewareForOneMethod TestListsOfMiddleware"},
		{"Escape hatch", "raw requests in both eras", "TestEveryMethod TestRequestOfAServerThatWasReplaced TestLegacyQuestions"},
	}
}

func serverProofs() []proof {
	return []proof{
		{"Lifecycle", "session iterator, instructions, a hook after initialize, and data of the program for each session", "TestSessionKnowsItsPeer TestSessionContextEndsWithItsSession TestHandlersKnowWhoCallsThem"},
		{"Tools", "typed and raw; enums, formats, defaults from tags and types", "TestResultTypesOfATool TestTagsDescribeAndFillIn TestTypedValuesFitTheirInferredSchemas TestDefaultsOfADeclaredSchema"},
		{"Tools", "add and remove; changes are reported at most once in ten milliseconds", "TestLegacyClientsGetChangesOnceInitialized TestChangesAreReportedAtMostOnceInTenMilliseconds TestChangesDuringOnEventAreCombined TestChangesForASlowClientAreCombined TestToolsNeedTheCapabilityAtInitialize"},
		{"Tools", "annotations, icons, title and _meta", "TestMessagesFitThePublishedSchemas TestModernMessagesFitThePublishedSchemas TestToolsAndResultsKeepWhatTheyDoNotKnow"},
		{"Tools", "output of any JSON type", "TestOutputOfAnyType TestResultTypesOfATool"},
		{"Tools", "names are checked", "TestAddToolRefusesInvalidNamesAndSchemas"},
		{"Tools", "Mcp-Param-* must equal the arguments", "TestMirroredArgumentsHaveToBeTheSame"},
		{"Tools", "content unknown to the revision is converted or refused", "TestOldClientsGetNoBlocksThatTheyDoNotKnow"},
		{"Resources", "static resources and templates, subscriptions for each session, updates, maximum size, paging", "TestResourcesAreListedAndRead TestSubscribersGetUpdates TestSubscriptionsAreGrantedAndGivenBack TestCursorsOfAnyPageAreReadInPagesOfAnySize"},
		{"Resources", "a directory: traversal, links and other spellings are refused", "TestFilesAreServedAndNothingElse TestFilesHaveTheirOwnNamesOnly"},
		{"Prompts, completion", "arguments from a struct; completion of prompts and templates, at most 100 values", "TestPromptsAreListedAndMade TestArgumentsComplete TestCompletionOfAnUnknownReferenceIsRefused"},
		{"Roots, sampling, elicitation", "questions in both eras, and errors for missing capabilities", "TestQuestionsAreThoseOfTheRevision TestToolsThatAskDoTheSameInBothEras TestEveryKindOfQuestionIsAsked TestMissingCapabilitiesFailBeforeTheHandlerRuns TestPromptsAndResourcesAsk"},
		{"Roots, sampling, elicitation", "URL elicitation: required, and completed", "TestErrorNamesPagesThatMustBeOpened TestElicitationCompleteIsSent TestElicitationCompleteNeedsURLElicitation"},
		{"Logging", "level of the session, in 2026-07-28 of the request; limited rate", "TestLogsGoToClientsThatWantThem TestLogMessagesAreBounded"},
		{"Logging", "a slog.Handler, and a zap core", "ExampleLogHandler TestCoreLogsToTheClient TestLevelsOfTheCore"},
		{"2026-07-28", "all result types and caching hints", "TestModernResultsHaveAllRequiredMembers TestListTTLIsTheLifetimeOfLists TestStampSetsWhatIsMissing"},
		{"2026-07-28", "subscriptions/listen: filter, acknowledgement, end", "TestSubscriptionGetsOnlyGrantedChanges TestChangeDuringAcknowledgementIsReported TestSubscriptionsEndWithAResult TestMalformedSubscriptionsAreRefused"},
		{"2026-07-28", "a client that disconnects cancels its call", "TestDisconnectCancelsAModernRequest TestAbandonedCallsCleanUp TestCancelledRoundEndsTheCall"},
		{"Legacy oddities", "batches only in 2025-03-26, answered by an array", "TestBatchesAreReadWhereTheRevisionHasThem TestABatchRightBehindInitialize TestAnswersOfABatchAreSentTogether TestBatches"},
		{"Errors, _meta, extensions", "every encoder keeps unknown members; extensions are declared", "TestUnknownMembersSurviveAnyEncoder TestCapabilitiesKeepWhatTheyDoNotKnow TestKnownMetaChangesNothing"},
		{"Middleware", "in both directions, also typed; the first is the outermost", "TestMiddlewareWrapsBothDirections TestOnWrapsOneMethod"},
		{"Escape hatch", "the program's own methods, and a fallback for unknown ones", "TestOwnMethodsAndTheFallback"},
	}
}
