/** Every page of the UI, in the order of the navigation. A page is a folder here and one entry. */

import { countPending } from '../state/approvals';
import type { PageEntry } from './entry';

export const PAGES: readonly PageEntry[] = [
  { path: 'chat', title: 'Chat', icon: 'chat', load: () => import('./chat/ChatPage'), isInBar: true },
  {
    path: 'approvals',
    title: 'Approvals',
    icon: 'shield',
    load: () => import('./approvals/ApprovalsPage'),
    isInBar: true,
    getBadge: countPending,
  },
  { path: 'overview', title: 'Overview', icon: 'home', load: () => import('./overview/OverviewPage'), isInBar: true },
  { path: 'cron', title: 'Schedule', icon: 'clock', load: () => import('./cron/CronPage') },
  { path: 'memory', title: 'Memory', icon: 'book', load: () => import('./memory/MemoryPage') },
  { path: 'skills', title: 'Skills', icon: 'bolt', load: () => import('./skills/SkillsPage') },
  { path: 'agents', title: 'Agents', icon: 'users', load: () => import('./agents/AgentsPage') },
  { path: 'channels', title: 'Channels', icon: 'plug', load: () => import('./channels/ChannelsPage') },
  { path: 'config', title: 'Config', icon: 'gear', load: () => import('./config/ConfigPage'), isRare: true },
  { path: 'usage', title: 'Usage', icon: 'chart', load: () => import('./usage/UsagePage'), isRare: true },
  { path: 'subagents', title: 'Sub-agents', icon: 'tree', load: () => import('./subagents/SubagentsPage'), isRare: true },
  { path: 'devices', title: 'Devices', icon: 'device', load: () => import('./devices/DevicesPage'), isRare: true },
  { path: 'audit', title: 'Audit', icon: 'audit', load: () => import('./audit/AuditPage'), isRare: true },
  { path: 'logs', title: 'Logs', icon: 'log', load: () => import('./logs/LogsPage'), isRare: true },
  { path: 'setup', title: 'Set up', icon: 'lightbulb', load: () => import('./setup/SetupPage'), isRare: true },
];
