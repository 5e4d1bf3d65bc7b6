package guarantees

const attacksPreamble = `# Attacks, and the tests that make them

What a hostile or broken peer, network or file was once seen to do to Bowline, what happens now, and the tests that attack.
[SECURITY.md](../SECURITY.md) says what else counts as a vulnerability, and [the guarantees](guarantees.md) what is promised.
To measure a good client while others attack:

    go test -run '^$' -bench GoodClientUnderAttack -benchtime 2000x ./transport/streamable

This page is generated: ` + "`make docs`" + ` rewrites it, and a test fails when it is stale or names a test that is not there.

| Attack | What happens | Tests |
| --- | --- | --- |
`

func attackProofs() []proof {
	return []proof{
		{"a schema that refers to itself from two alternatives, and a deep value", "validation takes steps in proportion to the value, at most 10 million, and stops with its context", "TestAttacksTakeFewSteps TestValidateStopsWithItsContext TestValidationTakesLittleMemory TestMemoIsBounded"},
		{"one modern client holds calls of 16 MiB, many small ones, and listens", "bounds are per client; others are served", "TestModernClientsDoNotShareTheirBounds TestBodiesOfOneClientLeaveRoomForOthers BenchmarkGoodClientUnderAttack"},
		{"`initialize` with bulk in names, capabilities or `_meta`", "what a session keeps is small, and bounded over all sessions", "TestInitializeIsSmall TestInitializeIsBounded TestWhatSessionsKeepIsBounded TestDeliveredMessageIsNotKept"},
		{"millions of tiny values in one frame", "2^20 values in a frame, and no trees of Go values", "TestValueLimitIsExact TestDefaultValueLimit TestHostileFramesCostLittleMemory"},
		{"large answers, or a batch of them, that nobody reads", "one budget of what is outbound; what is cut is aborted, never ended in good order", "TestUnreadAnswersAreBounded TestBatches"},
		{"10,000 `initialize`", "sessions that were never used make room first; a cap for each client", "TestSessionsThatWereNeverUsedMakeRoomFirst TestManySessionsOfOneClientEndNoOthers TestSessionsInUseAreBoundedPerClient TestManyClientsEndNoSession"},
		{"a server echoes our credentials: in a URL, a redirect or a body", "they are redacted wherever a text leaves", "TestRedact TestErrorsShowNoCredentials TestErrorsShowNoQuery TestErrorsDoNotRepeatCredentials TestSecretsOfAnySpellingStayHere TestCredentialsAreRedacted"},
		{"endless pages of tools, or huge ones", "lists are bounded in pages, entries and bytes", "TestPagingIsBounded TestListsAreBoundedInBytes TestListsAreBounded TestMapsAndBlocksAreBounded"},
		{"an `.mcp.json` in an untrusted working directory", "its commands run with consent alone, remembered for that content", "TestConfigOfTheWorkingDirectoryNeedsConsent TestConsentOnATerminal TestCompletionStartsNoServerThatNobodyNamed"},
		{"a packed body; half a request; a slow one", "415; cut by a time limit", "TestHostileSockets TestServeKeepsWhatTheProgramHasSet"},
		{"control sequences and bidirectional text for a terminal; forged lines", "neutralised, quoted, marked", "TestServersCannotDriveATerminal TestToolFailureCannotDriveTheTerminal TestPrintableLeavesNoControlCharacters TestPrintableLeavesNoTricks TestServerLogMarksEveryLine TestNamesForgeNothing"},
		{"a FIFO in place of a configuration", "opening it ends at a signal", "TestInterruptEndsOpeningAFile"},
		{"a server that drains, or dials that fail, while other exchanges live", "dials count only while nothing of the link is alive", "TestFailedDialsDoNotCountWhileAResponseIsOpen TestFailedDialsDoNotCountWhileARequestWaits TestAFullPoolIsNoFailedDial TestTwoFailedDialsAreALoss"},
		{"clients that send half a large body and stall", "small bodies do not wait for large ones; a slow body is cut by a least rate", "TestSmallBodiesDoNotWaitForLargeOnes TestBodyThatComesSlowly TestBodyThatStopsComing TestStalledBody TestReadTimeoutOfTheServerHolds"},
		{"128 handlers that ignore their context", "told once, named, and no longer counted after a grace", "TestStuckToolsDoNotLockTheirClientOut TestStuckHandlersAreNamed TestHandlerThatIgnoresItsContextIsNamed"},
		{"a server that closes streams to be polled", "its delay is taken", "TestAStreamIsResumedWhenTheServerSays TestPolling TestPriming"},
		{"a banner, or logs, on a child's standard output", "dropped and counted; lost at 10,000 lines or 16 MiB without a frame", "TestServerThatPrintsABannerConnects TestTenThousandMalformedFramesLoseTheLink TestSixteenMebibytesOfMalformedFramesLoseTheLink"},
		{"a session that its server has forgotten", "a fresh one at once, once; then backoff", "TestAForgottenSessionIsReplacedAtOnce TestAnExpiredSessionIsALoss"},
		{"429 and 503 with `Retry-After`", "not sent; made again after that delay", "TestAnOverloadedServerIsAskedAgain TestAnOverloadedServerHasNotAnswered TestThePeerMayAskForALongerDelay TestACrashLoopHonoursTheDelayAskedFor"},
		{"more than the server can take", "a code, and over HTTP a status, of its own", "TestOverload TestFloodOfRequestsIsRefused"},
		{"`\"arguments\": null`; arguments that hold nothing; ids such as `1.0`", "taken as absent; `{}`; equal numbers match", "TestNullIsAbsentAndNumbersAreEqual TestCallsWithArgumentsThatHoldNothing TestArgumentsThatHoldNothing TestIDsOfEqualNumbersAreEqual"},
		{"batches of 2025-03-26, also behind `initialize`; defaults of a schema; discover without tools", "an array; served; applied; not declared", "TestBatchesAreReadWhereTheRevisionHasThem TestABatchRightBehindInitialize TestDefaultsOfADeclaredSchema TestDiscoverSaysWhatTheServerIs"},
		{"Close while notifications wait; a peer that falls silent; a bounce of many idle sessions", "names the right one; lost in the time that is promised; all return together", "TestCloseWhileNotificationsWait TestSilentPeerIsLostInTime TestSessionsReturnTogether TestSessionsReturnTogetherOverHTTP"},
		{"a malformed reply whose id can be read", "its call fails at once", "TestMalformedAnswerEndsItsCall TestMalformedResponseNamesItsRequest"},
		{"a file read by another spelling of its name, or through a link", "a client reads what it is listed, and nothing else", "TestFilesAreServedAndNothingElse TestFilesHaveTheirOwnNamesOnly"},
	}
}
