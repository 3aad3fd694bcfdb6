import './styles/tokens.css';
import './styles/base.css';
import { render } from 'preact';
import { App } from './app/App';
import { startShortcuts } from './app/shortcuts';
import { takeTokenFromAddress } from './gateway/credentials';
import { connect } from './gateway/gateway';
import { startApprovals } from './state/approvals';
import { startSessions } from './state/sessions';
import './state/theme';

takeTokenFromAddress();
startApprovals();
startSessions();
startShortcuts();
const root = document.getElementById('app');
if (root) render(<App />, root);
connect();
