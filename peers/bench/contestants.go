package bench

import (
	"fmt"
)

// contestants are all, in the order of the tables. The floors know no revisions.
func contestants() []contestant {
	return []contestant{
		{theFloor, "", false, floor()},
		{floorOfFrames, "", false, floorFrames()},
		{floorByHand, "", false, limit()},
		{bowlineRaw, legacy, false, bowline(rawTool)},
		{bowlineTyped, legacy, false, bowline(echoTool)},
		{bowlineModern, modern, true, bowline(echoTool)},
		{bowlineEvents, legacy, true, bowline(eventsTool)},
		{bowlineOwnHTTP, legacy, true, overOwnHTTP()},
		{bowlineHooks, legacy, true, watched(watch{})},
		{bowlineMetrics, legacy, true, watched(watch{middleware: true})},
		{bowlineUnsampled, legacy, true, watched(watch{middleware: true, traces: true})},
		{bowlineSampled, legacy, true, watched(watch{middleware: true, traces: true, sampled: true})},
		{bowlineInCluster, legacy, true, clustered(ownNode)},
		{bowlineProxied, legacy, true, clustered(proxied)},
		{bowlineForwarded, legacy, true, clustered(otherNode)},
		{bowlineStdio, legacy, true, overStdioAlone()},
		{bowlineBoth, legacy, true, overBoth(1)},
		{bowlineBothOfTen, legacy, true, overBoth(10)},
		{theRelay, legacy, true, floorRelay()},
		{bowlineGateway, legacy, true, gatewayed(legacy)},
		{gatewayModern, modern, true, gatewayed(modern)},
		{gatewayUp, legacy, true, gatewayed(modern)},
		{gatewayDown, modern, true, gatewayed(legacy)},
		{gatewayGuarded, legacy, true, gatewayOfTeam()},
		{npmMCPProxy, legacy, true, outside(npmProxy)},
		{goSDKLegacy, legacy, true, goSDK()},
		{goSDKModern, modern, true, goSDK()},
		{mcpGoLegacy, legacy, true, mcpGo()},
		{mcpGoModern, modern, true, mcpGo()},
		{mcpGoInside, legacy, true, mcpGoInProcess()},
	}
}

func contestantNamed(name string) (contestant, error) {
	for _, c := range contestants() {
		if c.name == name {
			return c, nil
		}
	}
	return contestant{}, fmt.Errorf("there is no contestant %q", name)
}
