package guarantees

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A proof is a row of a page: what holds, and the tests that show it, by their names and
// with spaces between them.
type proof struct{ area, what, tests string }

const proofsPreamble = `
## Tests

What the methods cannot say, and the tests that show it. Most tests of the server that need both sides run over stdio
and HTTP in every revision that has what they test. Tests of transports and of [other SDKs](interop-features.md) are apart.

| Area | Side | What | Tests |
| --- | --- | --- | --- |
`

// TestProofsAreThere holds that the tests of both tables exist. The pages themselves are
// compared by TestFeaturesPageIsFresh and TestAttacksPageIsFresh.
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

// TestAttacksPageIsFresh compares docs/attacks.md with its rows. With -update it rewrites
// the page.
func TestAttacksPageIsFresh(t *testing.T) {
	var page strings.Builder
	page.WriteString(attacksPreamble)
	files := filesOfTests(t)
	for _, p := range attackProofs() {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", cell(p.area), cell(p.what), linked(files, p.tests))
	}
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

// filesOfTests has the files of the tests, benchmarks and examples of the tree.
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
		{"Lifecycle", "the sessions of a client, by iterator and by name", "TestSessionsOfAClient TestSessionIsFoundByName"},
		{"Lifecycle", "Wait until a session is over, and why", "TestWait"},
		{"Lifecycle", "server info, capabilities, instructions and revision", "TestServerSpeaksOfItself TestEveryLegacyRevisionIsNegotiated TestOlderServerIsSpokenTo"},
		{"Lifecycle", "log level, subscriptions, listen and lists restored after a reconnect", "TestLegacyServerIsRestored TestModernServerIsRestored TestOneListenForAllThatIsWanted"},
		{"Lifecycle", "one gap event for each gap", "TestEachGapIsToldOnce TestGapsWhileTheProgramIsBusy TestLostComesBeforeWhatTheNextServerSays"},
		{"Tools", "list and iterator over all pages", "TestToolsRangesOverAllPages TestCursorsAreFollowed TestRepeatedCursorEndsThePaging TestPagingIsBounded"},
		{"Tools", "typed and raw calls; a plain value or map as arguments", "TestCallReadsResults TestTypedToolAnswers TestCallsWithArgumentsThatHoldNothing ExampleCall"},
		{"Tools", "structured content checked against the output schema", "TestCallChecksTheOutputSchema"},
		{"Tools", "arguments mirrored to Mcp-Param-*; tools with invalid x-mcp-header dropped", "TestMirroredArguments TestWhatIsMirrored TestWhichAnnotationsAreValid"},
		{"Resources", "list, templates, read, subscribe, updated", "TestEveryList TestEveryMethod TestFeaturesOfOwnServer TestWatch"},
		{"Prompts, completion", "list, get, complete", "TestEveryMethod TestFeaturesOfOwnServer TestCompletionOfTheFirstRevision"},
		{"Roots", "handler, and list_changed", "TestLegacyQuestions TestRootsChanged"},
		{"Elicitation", "forms: defaults, validation against the schema, every kind of enum", "TestLegacyQuestions TestEveryKindOfField"},
		{"Elicitation", "URLs: shown whole, never fetched, opened with consent alone", "TestLegacyQuestions TestPagesAreNeverFetched TestPagesAreShownWhole"},
		{"Sampling", "handler, also with tools", "TestLegacyQuestions TestCapabilitiesFollowFromHandlers"},
		{"Asking", "both eras answered by the same handlers, in bounded rounds", "TestLegacyQuestions TestRounds TestRoundsEnd TestRoundsOfParallelCalls TestManualInput"},
		{"Logging", "level and handler", "TestLogsGoToClientsThatWantThem TestEveryNotificationIsTold TestLegacyServerIsRestored"},
		{"2026-07-28", "another version on -32022, also when the server names our own", "TestServerThatRefusesItsOwnRevision TestRevisionThatIsAskedForIsTheOneSpoken TestUnsupportedVersionIsRefused"},
		{"2026-07-28", "subscriptions/listen for all kinds", "TestOneListenForAllThatIsWanted TestModernServerIsAskedToTell TestSubscriptionThatIsNotGranted TestSubscriptionThatEndsIsMadeAgain"},
		{"Legacy oddities", "batches never sent, and read where the revision has them", "TestBatchesAreReadWhereTheRevisionHasThem TestBatchesBelongToOneRevision"},
		{"Errors, _meta, extensions", "*jsonrpc.Error by errors.As; open capability maps; unknown members survive any encoder", "TestErrorsMatch TestCommonFailuresHaveNames TestCapabilitiesKeepWhatTheyDoNotKnow TestUnknownMembersSurviveAnyEncoder TestStandardEncoderAgrees"},
		{"Middleware", "sending and receiving, typed, the first listed outermost", "TestMiddleware TestMiddlewareForOneMethod TestListsOfMiddleware"},
		{"Escape hatch", "raw requests in both eras", "TestEveryMethod TestRequestOfAServerThatWasReplaced TestLegacyQuestions"},
	}
}

func serverProofs() []proof {
	return []proof{
		{"Lifecycle", "iterator of sessions, instructions, hook once initialized, data of the program per session", "TestSessionKnowsItsPeer TestSessionContextEndsWithItsSession TestHandlersKnowWhoCallsThem"},
		{"Tools", "typed and raw; enums, formats, defaults from tags and types", "TestWhatAToolReturnsDecidesItsResult TestTagsDescribeAndFillIn TestTypedValuesFitTheirInferredSchemas TestDefaultsOfADeclaredSchema"},
		{"Tools", "add and remove; changes told at most once in ten milliseconds", "TestLegacyClientsAreToldOnceTheyAreInitialized TestChangesAreToldAtMostOnceInTenMilliseconds TestChangesThatComeTogetherAreToldAsOne TestToolsAreServedWhereTheyWereOffered"},
		{"Tools", "annotations, icons, title and _meta", "TestMessagesFitThePublishedSchemas TestModernMessagesFitThePublishedSchemas TestToolsAndResultsKeepWhatTheyDoNotKnow"},
		{"Tools", "output of any JSON type", "TestOutputOfAnyType TestWhatAToolReturnsDecidesItsResult"},
		{"Tools", "grammar of names", "TestAddToolRefusesNamesAndSchemasThatAreNone"},
		{"Tools", "Mcp-Param-* compared with the arguments", "TestMirroredArgumentsHaveToBeTheSame"},
		{"Tools", "content unknown to the revision is converted or refused", "TestOldClientsGetNoBlocksThatTheyDoNotKnow"},
		{"Resources", "static, templated, subscriptions per session, updates, size bound, paging", "TestResourcesAreListedAndRead TestSubscribersAreToldOfUpdates TestSubscriptionsAreGrantedAndGivenBack TestCursorsOfAnyPageAreReadInPagesOfAnySize"},
		{"Resources", "a directory: traversal, links and tricks of case refused", "TestFilesAreServedAndNothingElse TestFilesHaveTheirOwnNamesOnly"},
		{"Prompts, completion", "arguments from a struct; completion of prompts and templates, at most 100 values", "TestPromptsAreListedAndMade TestArgumentsComplete TestCompletionOfNothingKnownIsRefused"},
		{"Roots, sampling, elicitation", "the calls, in both eras, and the errors of capabilities", "TestQuestionsAreThoseOfTheRevision TestToolsThatAskDoTheSameInBothEras TestEveryKindOfQuestionIsAsked TestClientsThatCannotBeAskedAreToldFirst TestPromptsAndResourcesAsk"},
		{"Roots, sampling, elicitation", "URL elicitation required, and completed", "TestPagesThatAreRequiredFirst TestTheEndOfAPageIsTold TestTheEndOfAPageIsNotToldToOthers"},
		{"Logging", "level per session, of the request in 2026-07-28; bounded rate", "TestLogsGoToClientsThatWantThem TestLogMessagesAreBounded"},
		{"Logging", "a slog.Handler, and a zap core", "ExampleLogHandler TestCoreLogsToTheClient TestLevelsOfTheCore"},
		{"2026-07-28", "all result types and caching hints", "TestModernResultsSayAllThatTheyMust TestListsMayBeKeptAsTheProgramSays TestStampSetsWhatIsMissing"},
		{"2026-07-28", "listen: filter, acknowledgement, end", "TestSubscriptionsTellOfWhatTheyWereGranted TestWhatChangesAtTheAcknowledgementIsTold TestSubscriptionsEndWithAResult TestSubscriptionsThatCannotBeReadAreRefused"},
		{"2026-07-28", "a client that leaves cancels its call", "TestLeavingAModernRequest TestAbandonedCallsCleanUp TestCancelledRoundEndsTheCall"},
		{"Legacy oddities", "batches in 2025-03-26 alone, answered as an array", "TestBatchesAreReadWhereTheRevisionHasThem TestABatchRightBehindInitialize TestAnswersOfABatchAreSentTogether TestBatches"},
		{"Errors, _meta, extensions", "unknown members kept by any encoder; extensions declared", "TestUnknownMembersSurviveAnyEncoder TestCapabilitiesKeepWhatTheyDoNotKnow TestKnownMetaChangesNothing"},
		{"Middleware", "both directions, typed, the first listed outermost", "TestMiddlewareWrapsBothDirections TestOnWrapsOneMethod"},
		{"Escape hatch", "methods of one's own, and a fallback for unknown ones", "TestOwnMethodsAndTheFallback"},
	}
}
